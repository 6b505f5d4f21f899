"""Real networks quantized, loaded, run, timed and rated: `python -m tests.real`."""
