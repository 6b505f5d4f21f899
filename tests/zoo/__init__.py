"""Architectures of public libraries, prepared, trained a few steps and deployed."""
