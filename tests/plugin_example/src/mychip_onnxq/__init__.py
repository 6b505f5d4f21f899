"""How another package adds a pass, a side file and a backend to onnxq."""
