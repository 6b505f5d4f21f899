"""What is seen of the tensors of a float model that runs on data, and ranges chosen from it."""
