"""Strict reading of arguments, numbers and JSON: what is not exactly right is refused."""
