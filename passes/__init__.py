"""The passes, one a file; `onnxq passes` lists them."""
