"""onnxq."""
