"""ONNX protobuf in and out: weights, nodes, functions, external data."""
