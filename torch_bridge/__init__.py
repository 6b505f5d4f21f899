"""Quantization-aware training in torch, exported as exactly what was trained.

    q = prepare(net, backend="tensorrt", example_inputs=(x,))
    enable_calibration(q)      # run some batches
    enable_quantization(q)     # train
    deploy(q, (x,), "out/")    # canonical ONNX, the backend's files, and the proof

A backend's types and ranges, and the places of its quantizers, are data in `onnxq.backends`.
`print(tb.ALGORITHMS)` lists the algorithms, `tb.OBSERVERS` and `tb.PATTERNS` the rest; `register_*`
and entry points of packages add to them.
"""

from torch_bridge.deploy import deploy
from torch_bridge.export import export
from torch_bridge.fake_quant import ALGORITHMS, register_algorithm
from torch_bridge.float_state import float_state, load_float_state
from torch_bridge.insertion.op_kinds import register_op_kind
from torch_bridge.insertion.pattern import Link, Pattern
from torch_bridge.insertion.patterns import PATTERNS, register_pattern
from torch_bridge.insertion.training_recipe import recipe
from torch_bridge.nn import freeze_bn_stats, unfreeze_bn_stats
from torch_bridge.observers import OBSERVERS, register_observer
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
    "ALGORITHMS",
    "OBSERVERS",
    "PATTERNS",
    "Link",
    "Pattern",
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
    "register_algorithm",
    "register_observer",
    "register_op_kind",
    "register_pattern",
    "unfreeze_bn_stats",
]
