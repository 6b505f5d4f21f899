"""Shared parts of the side-file formats."""

from onnxq.side_files.side_file import SideFile, find_format, formats

__all__ = ["SideFile", "find_format", "formats"]
