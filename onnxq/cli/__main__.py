"""`python -m onnxq.cli`."""

from onnxq.cli.entry import main

main()
