"""What tests compare, count and show results with."""
