"""Quantizers in a graph: which tensors get one, with which settings, in which layers."""
