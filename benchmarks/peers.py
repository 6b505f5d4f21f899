"""Other tools on the BatchNormalization-folding job, each told to do as little else as it can."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import onnx

from benchmarks import with_onnxq

Job = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Peer:
    """A tool: the package it needs and a function that prepares the job (imports are not timed)."""

    package: str
    prepare: Callable[[], Job]

    @property
    def version(self) -> str | None:
        """The installed version; None where it is not installed."""
        if importlib.util.find_spec(self.package) is None:
            return None
        return importlib.metadata.version(self.package)


def _onnxq() -> Job:
    return with_onnxq.fold


def _onnxslim() -> Job:
    import onnxslim

    # Dead nodes must go, or the folded BatchNormalization stays; the rest is not this job.
    others = ["constant_folding", "subexpression_elimination", "weight_tying"]

    def fold(data: bytes) -> bytes:
        model = onnx.load_model_from_string(data)
        made = onnxslim.slim(model, skip_optimizations=others, no_shape_infer=True)
        return made.SerializeToString()

    return fold


def _onnxsim() -> Job:
    import onnxsim

    def fold(data: bytes) -> bytes:
        model = onnx.load_model_from_string(data)
        made, _ = onnxsim.simplify(model, skip_constant_folding=True, skip_shape_inference=True)
        return made.SerializeToString()

    return fold


def _onnxscript() -> Job:
    from onnxscript import rewriter
    from onnxscript.rewriter.rules.common import fuse_batchnorm_into_conv_rule

    def fold(data: bytes) -> bytes:
        model = onnx.load_model_from_string(data)
        return rewriter.rewrite(model, [fuse_batchnorm_into_conv_rule]).SerializeToString()

    return fold


def _onnxoptimizer() -> Job:
    import onnxoptimizer

    def fold(data: bytes) -> bytes:
        model = onnx.load_model_from_string(data)
        return onnxoptimizer.optimize(model, ["fuse_bn_into_conv"]).SerializeToString()

    return fold


PEERS = {
    "onnxq": Peer("onnxq", _onnxq),
    "onnxslim": Peer("onnxslim", _onnxslim),
    "onnxsim": Peer("onnxsim", _onnxsim),
    "onnxscript": Peer("onnxscript", _onnxscript),
    "onnxoptimizer": Peer("onnxoptimizer", _onnxoptimizer),
}
