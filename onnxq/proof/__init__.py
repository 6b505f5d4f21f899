"""Comparing models by running both, in quantization steps."""
