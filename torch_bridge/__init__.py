"""Quantization-aware training in torch, exported as exactly what was trained.

    q = prepare(net, backend="tensorrt", example_inputs=(x,))
    enable_calibration(q)      # run some batches
    enable_quantization(q)     # train
    deploy(q, (x,), "out/")    # canonical ONNX, the backend's files, and the proof

A backend's types and ranges, and the places of its quantizers, are data in `onnxq.backends`.
"""

from torch_bridge.deploy import deploy
from torch_bridge.export import export
from torch_bridge.float_state import float_state, load_float_state
from torch_bridge.insertion.training_recipe import recipe
from torch_bridge.nn import freeze_bn_stats, unfreeze_bn_stats
from torch_bridge.prepare import prepare
from torch_bridge.sharding import fully_shard
from torch_bridge.state import (
    calibrating,
    disable_all,
    enable_calibration,
    enable_quantization,
    quantizers,
    quantizing,
)

__all__ = [
    "calibrating",
    "deploy",
    "disable_all",
    "enable_calibration",
    "enable_quantization",
    "export",
    "float_state",
    "freeze_bn_stats",
    "fully_shard",
    "load_float_state",
    "prepare",
    "quantizers",
    "quantizing",
    "recipe",
    "unfreeze_bn_stats",
]
