"""Lint rules, one concept a file; `findings` lists those that hold for every backend."""
