"""The command line: commands, options, and how results are shown."""

from onnxq.cli.entry import main

__all__ = ["main"]
