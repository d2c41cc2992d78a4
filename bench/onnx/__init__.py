"""The real ONNX models: where they come from, the bare engine, and how much of its speed reaches Naiad's clients."""
