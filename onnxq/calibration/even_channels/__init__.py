"""Channels of activations made more alike, in ways that leave the function as it is."""
