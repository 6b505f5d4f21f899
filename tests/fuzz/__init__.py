"""Attacks: files broken by seed end in a clean error or a right result. `python -m tests.fuzz`."""
