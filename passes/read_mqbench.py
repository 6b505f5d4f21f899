"""MQBench's private operators (written into ONNX's own domain) to the canonical form.

    LearnablePerTensorAffine(x, s, z, lo, hi)           FakeQuantize; z is a float that training
    FakeQuantizeLearnablePerchannelAffine(x, s, z)      rounds and clamps to lo..hi, so that is done
    FixedPerTensorAffine(x, s, z, lo, hi)               FakeQuantize; s may be float64: it was
    FixedPerChannelAffine(x, s, z, axis, lo, hi)        float32 when torch computed with it
    FakeQuantizeDSQPertensor|Perchannel(x, s, z)        FakeQuantize
    FakeQuantizeTqtAffine(x, s, z, lo, hi)              FakeQuantize of scale 2^ceil(log2 s)
    NNIEQuantize(x, data_max)                           FakeQuantizeLog

`onnxq.dialects.mqbench` specifies what each computes. Constants keep the codes that training gave
them: if the canonical form would round one differently, the weight is put on the grid first.
Activations half way between two codes may get the other neighbour; the trace notes the operators
that are known to round them differently.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.dialects import mqbench
from onnxq.dialects.node_rewrite import Declined, attempt, known_input
from onnxq.edit import new_values, remove
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams
from onnxq.storage.node_metadata import type_of_codes
from passes.read_composed import Ties, note_ties

_FIX = "export the model from MQBench again"


@dataclass(frozen=True)
class ReadMqbench(Pass):
    """Read MQBench's private fake-quantize operators as FakeQuantize and FakeQuantizeLog."""

    name: ClassVar[str] = "read-mqbench"
    dialect: ClassVar[str] = "MQBench"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        ties: Ties = defaultdict(list)
        for node in model.nodes(*mqbench.OPERATORS, mqbench.LOGARITHMIC):
            attempt(node, trace, partial(_read, node, model, ties))
        note_ties(ties, trace)


def _read(node: gs.Node, model: Model, ties: Ties) -> str:
    """Rewrite one operator. Returns what it became."""
    if len(node.outputs) != 1:
        raise QParamsError("it does not have exactly one output", fix=_FIX)
    if node.op == mqbench.LOGARITHMIC:
        return _read_logarithmic(node, model)
    return _read_linear(node, model, ties)


def _read_logarithmic(node: gs.Node, model: Model) -> str:
    value = known_input(node, 1, "data_max")[1]
    if value.size != 1:
        raise Declined(f"its data_max has {value.size} elements, not one")
    x, out = node.inputs[0], node.outputs[0]
    reach = fake_quantize_log.checked(float(value.reshape(())), x)
    name = node.name or f"{out.name}.fake_quantize_log"
    remove(node, model)
    fake_quantize_log.make(model, x, out, reach, node, name=name)
    return f"logarithmic, largest magnitude {reach:.6g}"


def _read_linear(node: gs.Node, model: Model, ties: Ties) -> str:
    x = node.inputs[0]
    operator = mqbench.OPERATORS[node.op]
    params = _params(node, operator)
    params.check_shape(x.shape)
    value = array(x)
    if value is None:
        why = _rounds_differently(params, operator.kind)
        if why:
            ties[why].append(params.tensor)
    else:
        trained = mqbench.on_grid(value, params, operator.kind)
        if not np.array_equal(trained, params.fake(value)):
            x = new_values(model, x, trained.astype(value.dtype), node)
    out = node.outputs[0]
    dtype = np.float16 if node.inputs[1].dtype == np.float16 else None
    name = node.name or f"{out.name}.fake_quantize"
    remove(node, model)
    fake_quantize.make(model, x, out, params, node, name=name, dtype=dtype)
    return f"{params.qtype}" + (" per channel" if params.axis is not None else "")


def _rounds_differently(params: QParams, kind: str) -> str:
    """Why the operator rounds ties differently from FakeQuantize; '' if it does not."""
    if kind == "tqt" and params.lo is not None and params.lo < 0:
        return "TQT rounds negative values half way between two codes up"
    if kind == "dsq" and np.any(params.zero_point):
        return "DSQ adds the zero point before it rounds"
    # Multiplying by 1/s and dividing by s round alike if s is a power of two.
    if kind in ("learnable", "fixed") and np.any(np.frexp(params.scale)[0] != 0.5):
        return "torch multiplies by 1/scale, but FakeQuantize divides"
    return ""


def _params(node: gs.Node, operator: mqbench.Operator) -> QParams:
    at = {key: 3 + i for i, key in enumerate(operator.after)}
    lo, hi = (_integer(node, at[key], key) for key in ("quant_min", "quant_max"))
    scale = known_input(node, 1, "scale")[1].astype(np.float32).reshape(-1)
    axis = None
    if operator.per_channel and scale.size != 1:
        if "ch_axis" in at:
            axis = _integer(node, at["ch_axis"], "ch_axis")
        else:
            axis = mqbench.implied_axis(node.outputs[0])
        if axis is None:
            raise Declined(
                "ConvTranspose and other operators read it, so the axis of its scales is unknown"
            )
    kind = type_of_codes(node, lo, hi)
    if kind is None:
        raise Declined(f"its codes {lo}..{hi} are not integers of 2 to 16 bits")
    zero_point = _zero_point(node, operator, lo, hi).reshape(-1)
    params = QParams(node.inputs[0].name, kind, scale, zero_point, axis=axis, lo=lo, hi=hi)
    if operator.kind == "tqt":
        return params.with_(scale=mqbench.power_of_two(params.scale))
    return params


def _integer(node: gs.Node, index: int, key: str) -> int:
    """A bound or an axis: an attribute, or the constant at an input."""
    known = key in node.attrs
    stated = np.asarray(node.attrs[key]) if known else known_input(node, index, key)[1]
    if stated.dtype.kind not in "fiu" or stated.size != 1 or np.any(stated != np.rint(stated)):
        raise QParamsError(f"its {key} is not one integer", fix=_FIX)
    return int(stated.reshape(()))


def _zero_point(node: gs.Node, operator: mqbench.Operator, lo: int, hi: int) -> Array:
    """The zero point that the operator computes with; QParams refuses a fractional one."""
    value = known_input(node, 2, "zero point")[1]
    if operator.kind == "learnable" and np.isfinite(value).all():
        return np.clip(np.rint(value), lo, hi)
    if operator.kind == "tqt" and np.any(value != 0):
        raise Declined(
            f"its zero point '{node.inputs[2].name}' is not 0, but TQT is symmetric and ignores it"
        )
    return value


__all__ = ["ReadMqbench"]
