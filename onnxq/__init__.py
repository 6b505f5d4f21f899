"""onnxq: ONNX graph rewriting for quantized networks.

`import onnxq` loads neither torch nor onnxruntime; those come with the functions that need them.
"""

# First: Ctrl-C may come while the rest is imported.
import onnxq.cli_process  # noqa: F401

# isort: split
from onnxq.convert import Conversion, convert
from onnxq.errors import OnnxqError
from onnxq.graph import Model, from_proto, load, save
from onnxq.pipeline import Pipeline
from onnxq.qparam_table import QParamTable
from onnxq.qparams import QParams
from onnxq.verify import verify

__version__ = "0.1.0"

__all__ = [
    "Conversion",
    "Model",
    "OnnxqError",
    "Pipeline",
    "QParamTable",
    "QParams",
    "__version__",
    "convert",
    "from_proto",
    "load",
    "save",
    "verify",
]
