"""What is installed here, what works, and what this CPU means for int8."""
