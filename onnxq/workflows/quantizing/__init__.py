"""The steps of a quantization: its samples, its float layers and its verdict."""
