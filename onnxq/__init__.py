"""onnxq: ONNX graph rewriting for quantized networks.

`import onnxq` loads neither torch nor onnxruntime nor any pass; those come with what needs them.
"""

# First: Ctrl-C may come while the rest is imported.
import onnxq.process

# isort: split
import importlib
from typing import TYPE_CHECKING, Any

# What these add to every model they register (see `onnxq.graph.hooks`).
import onnxq.dialects.quantizing_operators
import onnxq.opsets.opset_upgrade  # noqa: F401
from onnxq.errors import OnnxqError
from onnxq.graph import Model, from_proto, load, save
from onnxq.pipeline import Pipeline
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams

if TYPE_CHECKING:
    from onnxq.environment.checkup import doctor
    from onnxq.proof.verify import verify
    from onnxq.workflows.bench import bench
    from onnxq.workflows.convert import Conversion, convert
    from onnxq.workflows.quantize import Quantization, quantize
    from onnxq.workflows.report import ModelReport, report

__version__ = "0.1.0"

__all__ = [
    "Conversion",
    "Model",
    "ModelReport",
    "OnnxqError",
    "Pipeline",
    "QParamTable",
    "QParams",
    "Quantization",
    "__version__",
    "bench",
    "convert",
    "doctor",
    "from_proto",
    "load",
    "quantize",
    "report",
    "save",
    "verify",
]

_LATER = {
    "Conversion": "onnxq.workflows.convert",
    "ModelReport": "onnxq.workflows.report",
    "Quantization": "onnxq.workflows.quantize",
    "bench": "onnxq.workflows.bench",
    "convert": "onnxq.workflows.convert",
    "doctor": "onnxq.environment.checkup",
    "quantize": "onnxq.workflows.quantize",
    "report": "onnxq.workflows.report",
    "verify": "onnxq.proof.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'onnxq' has no attribute '{name}'")
    found = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return found
