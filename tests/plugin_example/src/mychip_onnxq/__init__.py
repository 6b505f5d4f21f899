"""How another package adds to onnxq: a pass, a side file, a lint rule, a backend, and for training
an algorithm, an observer and a pattern."""
