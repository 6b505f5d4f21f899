"""The user's model as a graph: traced, checked against an example call, and kept as a module."""
