"""The passes, one per file; `onnxq passes` lists them."""
