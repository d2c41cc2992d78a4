"""The inference service's protobuf messages, to calls and from responses."""
