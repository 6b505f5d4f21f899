r"""Compares ways to choose ranges, in one session.

Recipes that differ in the method alone make the same graph: only scales and zero points of the
activations' quantizers differ. As inputs of the graph

    x'  =  DequantizeLinear(QuantizeLinear(x, s, z), s, z),      s and z given with every run

they change from method to method, while everything else is made once: the graph, its rounded
weights and the session.
"""

from __future__ import annotations

from onnxq.calibration.trials.trial import Noise, Trial, with_rounded_weights
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, encode, params_of
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.edit import set_input, variable
from onnxq.graph import Model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, QParams
from onnxq.running.sessions import session

STEM = "onnxq.grid"


class RangeTrial:
    """A canonical model whose quantizers of activations take their numbers from outside."""

    def __init__(self, model: Model, trial: Trial) -> None:
        made = with_rounded_weights(model)
        self._trial = trial
        self._rows: list[tuple[QParams, object]] = []  # with the float type of each
        self._complete = all(node.op == "FakeQuantize" for node in made.nodes(*QUANTIZERS))
        for node in made.nodes(FAKE_QUANTIZE):
            self._rows.append((params_of(node), node.inputs[1].dtype))
            for index in (1, 2):
                given = variable(made, "", like=node.inputs[index])
                given.name = f"{STEM}.{len(self._rows) - 1}.{index}"
                set_input(node, index, given)
                made.graph.inputs.append(given)
        made.refresh()
        self._session = session(made, "reference")

    def noise(self, table: QParamTable) -> Noise | None:
        """The noise with these quantizers; None if they differ in more than their numbers."""
        rows = {row.tensor: row for row in table}
        given: dict[str, Array] = {}
        for number, (old, dtype) in enumerate(self._rows):
            new = rows.get(old.tensor)
            if new is None or not _alike(old, new):
                return None
            scale, zero = encode(new, dtype)
            given |= {f"{STEM}.{number}.1": scale, f"{STEM}.{number}.2": zero}
        return self._trial.noise(self._session, more=given) if self._complete else None


def _alike(one: QParams, other: QParams) -> bool:
    """Whether two quantizers differ in scale and zero point at most."""
    keys = [(row.qtype, row.lo, row.hi, row.axis, row.block) for row in (one, other)]
    return keys[0] == keys[1] and one.scale.shape == other.scale.shape


__all__ = ["RangeTrial"]
