"""A network trained on CIFAR-10, quantized beside onnxruntime's quantize_static."""
