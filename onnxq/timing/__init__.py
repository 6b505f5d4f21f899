"""Latencies: models in processes of their own, interleaved rounds, onnxruntime's profile."""
