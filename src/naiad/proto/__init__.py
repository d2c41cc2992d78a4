"""Protobuf messages: the compiled descriptor set and its private pool. Importing this loads neither."""

from naiad.proto.index import DescriptorIndex
from naiad.proto.pool import Message, descriptor_set, message_class

__all__ = ["DescriptorIndex", "Message", "descriptor_set", "message_class"]
