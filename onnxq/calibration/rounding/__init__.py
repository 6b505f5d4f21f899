"""Weights of few bits, rounded by what their layers compute."""
