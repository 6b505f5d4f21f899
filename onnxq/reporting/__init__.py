"""One page about a model: what is quantized, what that costs, and what to do about it."""
