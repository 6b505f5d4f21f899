"""Quantization as values: types, scales and zero points, tables, what a target accepts."""
