"""Strict reading of arguments, numbers and JSON: anything not exactly right is rejected."""
