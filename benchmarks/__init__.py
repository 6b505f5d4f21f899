"""Speed and memory of onnxq beside other ONNX tools and beside a loop written by hand."""
