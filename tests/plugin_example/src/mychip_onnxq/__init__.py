"""How another package adds a pass, a side file, a lint rule and a backend to onnxq."""
