"""Running models in onnxruntime: sessions, samples, shapes, constants."""
