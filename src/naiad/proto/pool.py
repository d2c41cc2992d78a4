"""Message classes made from the package's own descriptor set, in a descriptor pool that nobody else sees.

Owns the pool. The default pool of protobuf is never touched: a process that also imports another library's copy of the same
messages would clash there. Doesn't own what the messages mean.
"""

from __future__ import annotations

import threading
from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message = Any
"""A message of a class made at run time: it has fields that no type checker knows of, hence no better type than Any."""

# Two threads that load models must not make two pools: messages of different pools don't mix.
_lock = threading.Lock()


def descriptor_set() -> bytes:
    """Return the FileDescriptorSet, serialized, each file after those it imports."""
    return resources.files("naiad.proto").joinpath("naiad.binpb").read_bytes()


@cache
def message_class(full_name: str) -> type[Message]:
    """Return the class of a message by its full name, `inference.ModelConfig`; the same one each time.

    Raises KeyError for a name that the descriptor set doesn't have.
    """
    with _lock:
        return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full_name))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    """Return the pool with every file of the descriptor set; called under the lock only."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file:
        pool.Add(file)
    return pool
