"""Sans-I/O codecs: bytes to InferCall, InferResponse to buffers."""
