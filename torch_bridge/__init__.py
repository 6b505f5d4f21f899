"""Quantization-aware training in torch, exported as exactly what was trained."""
