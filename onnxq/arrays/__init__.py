"""Arrays that are read, packed and computed piece by piece."""
