"""Functions of torch as nodes of a graph."""
