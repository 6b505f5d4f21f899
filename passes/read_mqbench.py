"""MQBench's private operators (written into ONNX's own domain) to the canonical form.

    LearnablePerTensorAffine(x, s, z, lo, hi)           FakeQuantize; z is a float that training
    FakeQuantizeLearnablePerchannelAffine(x, s, z)      rounds and clamps to lo..hi, so that is done
    FixedPerTensorAffine(x, s, z, lo, hi)               FakeQuantize; s may be float64: it was
    FixedPerChannelAffine(x, s, z, axis, lo, hi)        float32 when torch computed with it
    FakeQuantizeDSQPertensor|Perchannel(x, s, z)        FakeQuantize
    FakeQuantizeTqtAffine(x, s, z, lo, hi)              FakeQuantize of scale 2^ceil(log2 s)
    NNIEQuantize(x, data_max)                           FakeQuantizeLog

`onnxq.dialects.mqbench` tells what each computes. Constants keep the codes that training gave them:
where the canonical form would round one otherwise, the weight is put on the grid first. Activations
half way between two codes may get the other neighbour; the trace notes where an operator is known
to round them otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.dialects import mqbench
from onnxq.dialects.node_rewrite import Declined, attempt
from onnxq.edit import new_values, remove
from onnxq.errors import QParamsError
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array, computed, is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.storage.node_metadata import type_of_codes

_FIX = "export the model from MQBench again"


@dataclass
class _Ties:
    """Activations whose ties the source rounds otherwise, by the way it does."""

    upwards: list[str] = field(default_factory=list)
    shifted: list[str] = field(default_factory=list)
    reciprocal: list[str] = field(default_factory=list)

    def add(self, params: QParams, kind: str) -> None:
        if kind == "tqt" and params.lo is not None and params.lo < 0:
            self.upwards.append(params.tensor)
        if kind == "dsq" and np.any(params.zero_point):
            self.shifted.append(params.tensor)
        if kind in ("learnable", "fixed") and not _exact_reciprocal(params.scale):
            self.reciprocal.append(params.tensor)

    def report(self, trace: Trace) -> None:
        for names, why in (
            (self.upwards, "TQT rounds negative values half way between two codes up"),
            (self.shifted, "DSQ adds the zero point before it rounds"),
            (self.reciprocal, "torch multiplies by 1/scale, but FakeQuantize divides"),
        ):
            if names:
                shown = ", ".join(f"'{n}'" for n in names[:3])
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                trace.note(
                    f"{shown}{more}: {why}, so inputs half way between two codes may have "
                    "rounded to the other neighbour in training"
                )


def _exact_reciprocal(scale: Array) -> bool:
    """Whether multiplying by 1/s and dividing by s round alike: s is a power of two."""
    return bool(np.all(np.frexp(scale)[0] == 0.5))


@dataclass(frozen=True)
class ReadMqbench(Pass):
    """Read MQBench's private fake-quantize operators as FakeQuantize and FakeQuantizeLog."""

    name: ClassVar[str] = "read-mqbench"
    dialect: ClassVar[str] = "MQBench"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        ties = _Ties()
        for node in model.nodes(*mqbench.OPERATORS, mqbench.LOGARITHMIC):
            if not domain_of(node):
                attempt(node, trace, partial(_read, node, model, ties))
        ties.report(trace)


def _read(node: gs.Node, model: Model, ties: _Ties) -> str:
    """Rewrite one operator; says what it became."""
    if len(node.outputs) != 1:
        raise QParamsError("it does not have exactly one output", fix=_FIX)
    if node.op == mqbench.LOGARITHMIC:
        return _read_logarithmic(node, model)
    return _read_linear(node, model, ties)


def _read_logarithmic(node: gs.Node, model: Model) -> str:
    value = _value(node, 1, "data_max")
    if value.size != 1:
        raise Declined(f"its data_max has {value.size} elements, not one")
    x, out = node.inputs[0], node.outputs[0]
    reach = fake_quantize_log.checked(float(value.reshape(())), x)
    name = node.name or f"{out.name}.fake_quantize_log"
    remove(node, model)
    fake_quantize_log.make(model, x, out, reach, node, name=name)
    return f"logarithmic, largest magnitude {reach:.6g}"


def _read_linear(node: gs.Node, model: Model, ties: _Ties) -> str:
    """Rewrite one operator of a linear grid; says what it became."""
    x = node.inputs[0]
    operator = mqbench.OPERATORS[node.op]
    params = _params(node, operator)
    params.check_shape(x.shape)
    value = array(x)
    if value is None:
        ties.add(params, operator.kind)
    else:
        trained = mqbench.on_grid(value, params, operator.kind)
        if not np.array_equal(trained, params.fake(value)):
            x = new_values(model, x, trained.astype(value.dtype), node)
    out = node.outputs[0]
    half = node.inputs[1].dtype == np.float16
    name = node.name or f"{out.name}.fake_quantize"
    remove(node, model)
    dtype = np.dtype(np.float16) if half else None
    fake_quantize.make(model, x, out, params, node, name=name, dtype=dtype)
    return f"{params.qtype}" + (" per channel" if params.axis is not None else "")


def _params(node: gs.Node, operator: mqbench.Operator) -> QParams:
    at = {key: 3 + i for i, key in enumerate(operator.after)}
    lo, hi = (_integer(node, at[key], key) for key in ("quant_min", "quant_max"))
    scale = _value(node, 1, "scale").astype(np.float32).reshape(-1)
    axis = None
    if operator.per_channel and scale.size != 1:
        stated = "ch_axis" in at
        axis = (
            _integer(node, at["ch_axis"], "ch_axis")
            if stated
            else mqbench.implied_axis(node.outputs[0])
        )
        if axis is None:
            raise Declined(
                "ConvTranspose and other operators read it, so the axis of its scales is unknown"
            )
    kind = type_of_codes(node, lo, hi)
    if kind is None:
        raise Declined(f"its codes {lo}..{hi} are not integers of 2 to 16 bits")
    params = QParams(
        tensor=node.inputs[0].name,
        qtype=kind,
        scale=scale,
        zero_point=_zero_point(node, operator, lo, hi).reshape(-1),
        axis=axis,
        lo=lo,
        hi=hi,
        role=Role.ACTIVATION if not is_constant(node.inputs[0]) else Role.WEIGHT,
    )
    if operator.kind == "tqt":
        return params.with_(scale=mqbench.power_of_two(params.scale))
    return params


def _value(node: gs.Node, index: int, what: str) -> Array:
    """The constant at an input."""
    if len(node.inputs) <= index or not node.inputs[index].name:
        raise QParamsError(f"its {what} (input {index}) is missing", fix=_FIX)
    value = computed(node.inputs[index])
    if value is None:
        raise Declined(f"its {what} '{node.inputs[index].name}' is computed at run time")
    return value


def _integer(node: gs.Node, index: int, key: str) -> int:
    """A bound or an axis: an attribute, or the constant at an input."""
    stated = np.asarray(node.attrs[key]) if key in node.attrs else _value(node, index, key)
    if stated.dtype.kind not in "fiu" or stated.size != 1 or np.any(stated != np.rint(stated)):
        raise QParamsError(f"its {key} is not one integer", fix=_FIX)
    return int(stated.reshape(()))


def _zero_point(node: gs.Node, operator: mqbench.Operator, lo: int, hi: int) -> Array:
    """The zero point that the operator computes with; QParams refuses a fractional one."""
    value = _value(node, 2, "zero point")
    if operator.kind == "learnable" and np.isfinite(value).all():
        return np.clip(np.rint(value), lo, hi)
    if operator.kind == "tqt" and np.any(value != 0):
        raise Declined(
            f"its zero point '{node.inputs[2].name}' is not 0, but TQT is symmetric and ignores it"
        )
    return value


__all__ = ["ReadMqbench"]
