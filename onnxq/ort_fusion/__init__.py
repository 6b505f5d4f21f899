"""Which quantized operators onnxruntime fuses, and why it leaves others alone."""
