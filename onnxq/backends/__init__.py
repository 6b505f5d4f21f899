"""The backends, one a file; `onnxq backends` lists them."""
