"""Arithmetic: the grid of a quantizer, the kernels that round to it, and its node in ONNX."""
