"""The ways in which other tools write quantization into ONNX, read and written."""
