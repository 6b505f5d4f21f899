"""`python -m onnxq` is the command line."""

from onnxq.cli import main

main()
