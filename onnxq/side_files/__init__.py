"""What the formats of files beside a model share."""

from onnxq.side_files.side_file import SideFile, find_format, formats

__all__ = ["SideFile", "find_format", "formats"]
