"""Lint rules, one concept a file; `onnxq.lint` says which hold for every backend."""
