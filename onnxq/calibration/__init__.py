"""Ranges from data: statistics that stream and merge, and quantizers placed by them."""
