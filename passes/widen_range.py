"""Let activation quantizers use the whole range of their type.

Some targets clamp only at the bounds of the type. A quantizer trained on -127..127 then gets the
code -128 as well: values below -127.5 steps become -128 steps instead of -127. Nothing changes for
a tensor that is never negative. The trace names each widened quantizer. A proof on inputs that
reach the added code accounts for it (`onnxq.workflows.fit_to_backend.Fitted.widened`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, container, params_of, set_params
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams


@dataclass(frozen=True)
class WidenRange(Pass):
    """Widen activation ranges such as -127..127 to the whole range of their type."""

    name: ClassVar[str] = "widen-range"
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("retype-activations",)

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            if is_constant(node.inputs[0]):
                continue
            params = params_of(node)
            kind, missing = container(params.qtype), _missing(params)
            if missing == 0:
                continue
            given = f"{params.lo}..{params.hi}"
            if missing > 1:
                reason = f"its range {given} is {missing} codes narrower than {kind}"
                trace.skip(node, f"{reason}; widening it would change more than one step")
                continue
            set_params(model, node, params.with_(qtype=kind, lo=kind.lo, hi=kind.hi))
            trace.rewrote(node, f"{given} -> {kind.lo}..{kind.hi}, one step at the end")


def _missing(params: QParams) -> int:
    """The number of codes of its type that a range does not have."""
    kind = container(params.qtype)
    assert params.lo is not None and params.hi is not None
    return (params.lo - kind.lo) + (kind.hi - params.hi)


def is_narrow(model: Model) -> bool:
    """Whether the pass would widen any range."""
    return any(
        _missing(params_of(node)) == 1
        for node in model.nodes(FAKE_QUANTIZE)
        if not is_constant(node.inputs[0])
    )
