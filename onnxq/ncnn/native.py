"""ncnn's two files as one format."""

from onnxq.native_model import NativeFormat
from onnxq.ncnn.reader import read
from onnxq.ncnn.writer import write

NCNN = NativeFormat("ncnn", write, read)
