"""`python -m onnxq.cli`."""

from onnxq.cli.commands import main

main()
