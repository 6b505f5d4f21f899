"""The canonical form: quantizer nodes, their functions, quantized weights."""
