"""The quantizer placement of a target: which tensors are rounded to codes, and which share.

A `Placement` is data, in words of op kinds. A kind is the name of an ONNX operator, with three
exceptions that ONNX spreads over several operators: `Linear` (Gemm or MatMul with a weight),
`Embedding` (Gather from a weight) and `MatMul` (a product of two activations only). 1-D, 2-D and
3-D forms of an operator are one kind.

A quantizer comes after the tensor it rounds, and every consumer of that tensor sees the rounded
values: one tensor, one range, as on a chip.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import onnx.defs

from onnxq.errors import OptionError, near_matches
from onnxq.operators import traits
from onnxq.operators.traits import WEIGHTED

Kinds = frozenset[str]
Pairs = frozenset[tuple[str, str]]


def kinds(*names: str) -> Kinds:
    """A set of kinds, from names separated by spaces."""
    return frozenset(name for group in names for name in group.split())


MOVES: Kinds = (traits.MOVES | {"Pad"}) - {"GlobalMaxPool"}
"""Kinds that move or select values, Pad with zeros among them. A global maximum is a MaxPool."""

KINDS = (
    MOVES
    | WEIGHTED
    | traits.SEVERAL
    | traits.NEVER_NEGATIVE
    | (traits.KEEPS_SIGN - traits.MOVES)
    | kinds(
        "BatchNormalization Clip Elu Embedding Gelu HardSwish LayerNormalization LeakyRelu PRelu",
        "Swish Tanh",
    )
)
"""All op kinds that the backends of onnxq name."""

_ADDED: set[str] = set()
_OTHER_KINDS = {"Gemm": "Linear", "GlobalMaxPool": "MaxPool"}
"""Operators that are of other kinds: see `onnxq.operators.op_kind`."""


def is_op_kind(name: str) -> bool:
    """Whether a rule can name it."""
    return name in KINDS or name in _ADDED


def add_op_kind(name: str) -> str:
    """Let rules name another ONNX operator: passes, lint and training then know the kind."""
    if not is_op_kind(name) and (name in _OTHER_KINDS or not onnx.defs.has(name)):
        raise OptionError(
            f"'{name}' is not the name of an ONNX operator, nor another op kind",
            fix=_near_kinds(name),
        )
    _ADDED.add(name)
    return name


@dataclass(frozen=True)
class Placement:
    """The rules of one target."""

    inputs: Kinds
    """Ops whose activation inputs are quantized."""
    outputs: Kinds = frozenset()
    """Ops whose output is quantized, even if it is an output of the network."""
    weights: Kinds = WEIGHTED
    """Ops whose weight is quantized."""
    absorbed: Kinds = frozenset()
    """Activation functions that run inside the op they follow: its output is quantized after them,
    not in between."""
    moves: Kinds = MOVES
    """Ops that are looked through: their output is quantized at its producer."""
    unified: Kinds = frozenset()
    """Ops whose inputs all share one quantizer."""
    merged: Pairs = frozenset()
    """(consumer, producer) pairs that run as one op: nothing is quantized in between."""
    untouched: Pairs = frozenset()
    """(consumer, producer): a consumer with any input from such a producer needs no quantizers."""
    accumulated: Kinds = frozenset()
    """Producers that a following Add takes straight from the accumulator. One input of an Add, the
    last such one without another consumer, is then not quantized."""
    joining: Kinds = frozenset()
    """Ops of `inputs` and `outputs` that run in integers only between others that do: if all they
    read is in codes anyway, and something that wants codes reads what they write."""
    float_if_cheap: bool = False
    """Whether layers that are as fast in float stay float if the model and data are at hand."""
    tensors_only: bool = False
    """Whether an op with a plain number among its operands needs no quantizers."""
    graph_inputs: bool = False
    """Whether network inputs are quantized even if no op needs it."""
    graph_outputs: bool = False
    """Whether network outputs are quantized."""
    unsigned: bool = False
    """Whether tensors that cannot be negative get the unsigned type."""
    boundary_bits: int | None = None
    """Bits of weight and input of the first and last layers; None: as all others."""
    unwritable: Kinds = frozenset()
    """Ops whose input ranges the target's files cannot contain. The chip rounds there too, so this
    is trained, but it cannot be written."""
    unwritable_groups: bool = False
    """Whether this also applies to grouped convolutions."""
    float_products: str = ""
    """Why products of two activations stay float, if no op `MatMul` is in `inputs`."""
    fuse: bool = True
    """Whether BatchNorm and activation functions are fused into the layer before training."""

    def __post_init__(self) -> None:
        """Reject a misspelt kind, which would silently never match."""
        named: set[str] = set()
        for field in fields(self):
            rule = getattr(self, field.name)
            if field.type == "Kinds":
                words = isinstance(rule, frozenset) and all(isinstance(r, str) for r in rule)
                self._check(field.name, words, '{"Conv"}')
                named |= rule
            elif field.type == "Pairs":
                pairs = isinstance(rule, frozenset) and all(
                    isinstance(each, tuple) and len(each) == 2 for each in rule
                )
                self._check(field.name, pairs, '{("Add", "Mul")}, of (consumer, producer)')
                named.update(kind for pair in rule for kind in pair)
        if unknown := sorted(name for name in named if not is_op_kind(name)):
            raise OptionError(
                f"unknown op kinds: {', '.join(unknown)}",
                fix=f"{_near_kinds(unknown[0])} Kinds are names of ONNX operators, and Linear, "
                "MatMul and Embedding; onnxq.backend.add_op_kind makes another operator one",
            )

    def _check(self, field: str, fits: bool, example: str) -> None:
        if not fits:
            raise OptionError(
                f"Placement: {field}={getattr(self, field)!r}", fix=f"give a frozenset({example})"
            )


def _near_kinds(name: str) -> str:
    if name in _OTHER_KINDS:
        return f"{name} is of the kind '{_OTHER_KINDS[name]}'."
    if onnx.defs.has(name):
        return f'{name} is an ONNX operator: call add_op_kind("{name}") first.'
    return near_matches(name, KINDS | _ADDED)


LAYERS = kinds(
    "Conv ConvTranspose Linear MaxPool AveragePool GlobalAveragePool BatchNormalization PRelu",
    "Resize Add Sub Mul",
)
"""The ops of convolutional networks that chips run in integers."""

SCALE_SHIFT: Pairs = frozenset({("Add", "Mul")})
"""x * a + b: one multiply-add."""

INPUTS_ONLY = Placement(inputs=LAYERS, merged=SCALE_SHIFT)
"""Every such op reads codes; network outputs stay float."""

TOTAL_INTEGER = Placement(
    inputs=LAYERS,
    outputs=LAYERS - MOVES,
    absorbed=kinds("Relu Clip"),
    merged=SCALE_SHIFT,
)
"""Every such op reads and writes codes, with activation functions inside the op before them."""
