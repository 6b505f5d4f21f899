"""Side-file formats, one a file, each with `write` and `read`."""
