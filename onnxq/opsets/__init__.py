"""Raising the opset of a model without changing what it computes."""
