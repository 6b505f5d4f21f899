"""A trained model as ONNX: torch's exporters, the trained numbers in the file, and the proof."""
