"""What choices cost: noise at the outputs, and time."""
