"""What onnxruntime's optimiser does to a quantized graph; `levels` has the overview."""
