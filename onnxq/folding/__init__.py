"""Folding operators into the layers before and after them."""
