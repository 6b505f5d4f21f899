"""The command line: commands, options, and how results are shown."""

from onnxq.cli.commands import main

__all__ = ["main"]
