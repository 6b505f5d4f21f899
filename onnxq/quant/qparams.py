"""Quantization parameters: the one representation used by passes, writers, readers and training.

For a real tensor x, scale s > 0 and integer zero point z in lo..hi

    quantize    q = clamp(round_half_even(x / s) + z, lo, hi)
    dequantize  y = (q - z) * s
    fake        y = dequantize(quantize(x))

Codes of a float8 type are its values, and z = 0: quantizing rounds x / s to the nearest of them,
ties to the even one, saturates at the ends and keeps NaN.

The division is float32, as onnxruntime computes it: x * (1/s) lands in another bin for one value
in a million, and for one in eight on values that already lie on another grid. The subtraction is
exact, the final product is one float32 rounding. `quantize` and `dequantize` are numpy oracles,
bit-equal to QuantizeLinear and DequantizeLinear for float32 input.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxq.arrays import pieces
from onnxq.arrays.pieces import Array as Array
from onnxq.errors import QParamsError
from onnxq.parsing.argument_types import INTEGER, check_fields, field_kinds
from onnxq.parsing.table_rows import GRAPH_OUTPUT as GRAPH_OUTPUT
from onnxq.parsing.table_rows import GridRow as GridRow
from onnxq.parsing.table_rows import Reader as Reader
from onnxq.parsing.table_rows import Role as Role
from onnxq.parsing.table_rows import readers_of, rejecting, role_of, row_entry
from onnxq.quant.qtypes import QType, qtype

_LARGEST = float(np.finfo(np.float32).max)
_set = object.__setattr__

_KINDS = field_kinds(tensor=str, qtype=QType, source=str, role=Role, readers=(tuple, None))
_KINDS |= field_kinds(
    axis=(*INTEGER, None), block=INTEGER, lo=(*INTEGER, None), hi=(*INTEGER, None)
)


@dataclass(frozen=True, slots=True, eq=False)
class QParams:
    """How one tensor is quantized. Invalid values cannot be constructed."""

    tensor: str
    qtype: QType
    scale: Array
    zero_point: Array
    axis: int | None = None
    block: int = 0
    lo: int | None = None
    hi: int | None = None
    role: Role = Role.ACTIVATION
    readers: tuple[Reader, ...] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        check_fields(self, _KINDS)
        try:
            scale, zero_point = self._own_arrays()
        except (TypeError, ValueError) as error:
            raise TypeError(f"QParams() takes numbers for scale and zero_point: {error}") from error
        kind = self.qtype
        lo = kind.lo if self.lo is None else int(self.lo)
        hi = kind.hi if self.hi is None else int(self.hi)
        if not kind.lo <= lo < hi <= kind.hi:
            raise self._rejected(
                f"range {lo}..{hi} does not fit {kind} ({kind.lo}..{kind.hi})",
                "use a wider type or a narrower range",
            )
        if kind.floating and (lo, hi) != (kind.lo, kind.hi):
            raise self._rejected(
                f"range {lo}..{hi} is narrower than {kind}",
                "float8 always uses its full range: leave lo and hi out, or use an integer type",
            )
        # A NaN among the scales makes both ends NaN, and every comparison false.
        least, most = _ends(scale)
        if not (least > 0 and most < math.inf):
            bad = scale[~(np.isfinite(scale) & (scale > 0))]
            raise self._rejected(
                f"scale {_first(bad)} is not a positive finite number",
                "recalibrate this tensor (an all-zero or NaN range gives such a scale), "
                "or leave it unquantized",
            )
        least, most = _ends(zero_point)
        if not lo <= least <= most <= hi:
            bad = zero_point[(zero_point < lo) | (zero_point > hi)]
            raise self._rejected(
                f"zero point {_first(bad)} is outside {lo}..{hi}",
                "zero must be exactly representable: clamp the range so that it contains 0",
            )
        if kind.floating and (least or most):
            raise self._rejected(
                f"zero point {_first(zero_point[zero_point != 0])} for codes of type {kind}",
                "float8 codes have zero point 0",
            )
        scale.setflags(write=False)
        zero_point.setflags(write=False)
        _set(self, "scale", scale)
        _set(self, "zero_point", zero_point)
        _set(self, "lo", lo)
        _set(self, "hi", hi)

    def _rejected(self, why: str, fix: str) -> QParamsError:
        return QParamsError(f"tensor '{self.tensor}': {why}", fix=fix)

    def _own_arrays(self) -> tuple[Array, Array]:
        """Copies of scale and zero point, in one shape that fits axis and block."""
        if isinstance(self.scale, np.ndarray) and self.scale.dtype == np.float32:
            scale = self.scale.copy()
        elif isinstance(self.scale, float) and self.scale < _LARGEST:
            scale = np.array(self.scale, np.float32)
        else:
            with np.errstate(over="ignore"):  # too large for float32: inf, which is rejected later
                scale = np.array(self.scale, dtype=np.float32, order="C")
        zero_point = np.asarray(self.zero_point)
        if zero_point.dtype.kind not in "iu":
            real = zero_point.astype(np.float64)
            odd = real[~((np.abs(real) < 2**53) & (real == np.rint(real)))]
            if odd.size:
                raise self._rejected(
                    f"zero point {_first(odd)} is not an integer",
                    "round zero points first; ONNX has integer zero points only",
                )
        elif zero_point.size > pieces.PIECE and zero_point.size == scale.size:
            least, most = _ends(zero_point)
            if least == most:  # as it mostly is: one number, seen as many
                zero_point = np.array(least)
        zero_point = zero_point.astype(np.int64)  # always a copy
        if not scale.size:
            raise self._rejected("there is no scale", "give one scale, or one per channel")
        if self.axis is None:
            if scale.size != 1:
                raise self._rejected(
                    f"{scale.size} scales but no axis",
                    "give the axis of the scales, or one scale",
                )
            # A one-element vector is a scalar in disguise; runtimes disagree on it, 0-d is safe.
            scale = scale.reshape(())
        elif not self.block and scale.ndim != 1:
            raise self._rejected(
                f"per-channel scale has shape {scale.shape}", "give one scale per channel, 1-D"
            )
        elif self.block and scale.ndim < 1:
            raise self._rejected("per-block scale is a scalar", "give one scale per block")
        if zero_point.size == 1 and scale.size != 1:
            one = zero_point.reshape(())
            if scale.size > pieces.PIECE:
                return scale, np.broadcast_to(one, scale.shape)
            return scale, np.full(scale.shape, one)
        if zero_point.size != scale.size:
            raise self._rejected(
                f"{zero_point.size} zero points for {scale.size} scales",
                "give as many zero points as scales",
            )
        return scale, zero_point.reshape(scale.shape)

    # -- arithmetic -------------------------------------------------------------------------

    def quantize(self, x: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        """Codes of `x`, the oracle for QuantizeLinear: int64, or float32 for a float8 type.

        `dtype` is another type for them: a large weight need not be int64.
        """
        wide = np.float32 if self.qtype.floating else np.int64
        return self._in_blocks(self.quantize_block, x, wide if dtype is None else dtype)

    def dequantize(self, codes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Real values of `codes`: the oracle for DequantizeLinear."""
        return self._in_blocks(self.dequantize_block, codes, np.float32)

    def fake(self, x: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> Array:
        """`x` rounded to the grid, as training simulates it and a chip computes it."""
        return self._in_blocks(self.fake_block, x, dtype)

    def _in_blocks(self, compute: Callable[..., Array], x: npt.ArrayLike, dtype: Any) -> Array:
        values = np.asarray(x)
        shape = values.shape
        if values.size <= pieces.PIECE:
            return compute(values, shape, (slice(None),) * len(shape)).astype(dtype, copy=False)
        parts = (compute(values[at], shape, at) for at in pieces.blocks(shape))
        return pieces.assembled(shape, dtype, parts)

    def quantize_block(self, x: Array, shape: tuple[int, ...], at: pieces.Index) -> Array:
        """`quantize` of the block `at` of a tensor of `shape`."""
        values = np.asarray(x, dtype=np.float32)
        scale, zero_point = self.block_of(shape, at)
        assert self.lo is not None and self.hi is not None
        if self.qtype.floating:
            with np.errstate(over="ignore"):
                inside = np.clip(values / scale, self.lo, self.hi)  # keeps NaN
            return np.asarray(inside.astype(self.qtype.dtype).astype(np.float32))
        if self.qtype.bits > 16:
            # No runtime quantizes to 32 bits; double precision recovers the codes of biases.
            values, scale = np.asarray(x, np.float64), scale.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            codes = np.rint(values / scale).astype(np.float64) + zero_point
            # NaN has no code; runtimes give the lowest one, and so does fmax.
            codes = np.fmin(np.fmax(codes, self.lo), self.hi)
        return codes.astype(np.int64)

    def dequantize_block(self, codes: Array, shape: tuple[int, ...], at: pieces.Index) -> Array:
        """`dequantize` of the block `at` of a tensor of `shape`."""
        scale, zero_point = self.block_of(shape, at)
        with np.errstate(over="ignore"):  # beyond float32 lies infinity, as in a runtime
            if self.qtype.floating:
                return np.asarray(np.asarray(codes, dtype=np.float32) * scale)
            steps = np.asarray(codes, dtype=np.int64) - zero_point
            return np.asarray(steps.astype(np.float32) * scale)

    def fake_block(self, x: Array, shape: tuple[int, ...], at: pieces.Index) -> Array:
        """`fake` of the block `at` of a tensor of `shape`."""
        return self.dequantize_block(self.quantize_block(x, shape, at), shape, at)

    def check_shape(self, shape: Sequence[int | str | None] | None) -> None:
        """Raise if a tensor of `shape`, as far as it is known, cannot have these scales."""
        if self.axis is not None and shape is not None:
            self._fitting_axis(shape)

    def broadcast(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Scale and zero point shaped so that they broadcast against a tensor of `shape`."""
        return self.block_of(shape, (slice(None),) * len(shape))

    def block_of(self, shape: tuple[int, ...], at: pieces.Index) -> tuple[Array, Array]:
        """`broadcast` against the block `at` of a tensor of `shape`."""
        if self.axis is None:
            return self.scale, self.zero_point
        return self.spread(self.scale, shape, at), self.spread(self.zero_point, shape, at)

    def spread(self, each: Array, shape: tuple[int, ...], at: pieces.Index) -> Array:
        """One value for each scale, shaped so that it broadcasts against a block of a tensor."""
        if self.axis is None:
            return each
        axis = self._fitting_axis(shape)
        if self.block:
            # The block that each of the part's elements along the axis belongs to.
            along = np.arange(*at[axis].indices(shape[axis])) // self.block
            within: Any = (*at[:axis], along, *at[axis + 1 :])
            return np.asarray(each[within])
        view = [1] * len(shape)
        view[axis] = -1
        return each[at[axis]].reshape(view)

    def _fitting_axis(self, shape: Sequence[int | str | None]) -> int:
        """The axis of a tensor of `shape` along which the scales lie; raises if they cannot."""
        assert self.axis is not None
        axis = self.axis if self.axis >= 0 else self.axis + len(shape)
        fix = "check the axis against the tensor's layout, or recalibrate"
        if not 0 <= axis < len(shape):
            raise self._rejected(f"axis {self.axis} does not exist in shape {list(shape)}", fix)
        size, have = shape[axis], self.scale.shape
        if self.block:
            blocks = -(-size // self.block) if isinstance(size, int) else size
            want = [*shape[:axis], blocks, *shape[axis + 1 :]]
            if len(have) != len(want) or any(
                isinstance(w, int) and h != w for h, w in zip(have, want, strict=True)
            ):
                raise self._rejected(
                    f"blocks of {self.block} along axis {axis} of shape {list(shape)} need scales "
                    f"of shape {want}, not {list(have)}",
                    fix,
                )
        elif isinstance(size, int) and have[0] != size:
            raise self._rejected(
                f"{have[0]} scales for {size} channels (axis {self.axis} of shape {list(shape)})",
                fix,
            )
        return axis

    # -- properties -------------------------------------------------------------------------

    @property
    def range(self) -> tuple[Array, Array]:
        """Smallest and largest real value on the grid, in float64."""
        scale = self.scale.astype(np.float64)
        assert self.lo is not None and self.hi is not None
        return (self.lo - self.zero_point) * scale, (self.hi - self.zero_point) * scale

    @property
    def is_symmetric(self) -> bool:
        """Whether zero is the code 0 of a signed type."""
        return self.qtype.signed and not np.any(self.zero_point)

    @property
    def is_narrow(self) -> bool:
        """Whether some codes of the storage type are not used."""
        return (self.lo, self.hi) != (self.qtype.lo, self.qtype.hi)

    @property
    def is_per_tensor(self) -> bool:
        """Whether one scale serves the whole tensor."""
        return self.axis is None

    def with_(self, **changes: Any) -> QParams:
        """A copy with some fields changed, validated again."""
        return dataclasses.replace(self, **changes)

    @property
    def grid_text(self) -> str:
        """The grid in words: type, codes, scales and zero point."""
        scale, zero = self.scale.reshape(-1), self.zero_point.reshape(-1)
        codes = f"{self.qtype} {self.lo}..{self.hi}"
        if scale.size == 1:
            return f"{codes}, scale {scale[0]:.6g}, zero point {zero[0]}"
        ends = f"{scale.min():.4g}..{scale.max():.4g}"
        return f"{codes}, {scale.size} scales {ends} on axis {self.axis}"

    def same_grid(self, other: GridRow) -> bool:
        """Whether both give the same value for every input."""
        return self.grid_key() == other.grid_key()

    def grid_key(self) -> Hashable:
        """Equal for the same grid, so that quantizers can be grouped."""
        grid = (self.scale.tobytes(), self.zero_point.tobytes(), self.scale.shape)
        values = self.qtype.name if self.qtype.floating else ""  # lo..hi say it for integers
        return (values, self.lo, self.hi, self.axis, self.block, *grid)

    def __repr__(self) -> str:
        return f"<QParams of '{self.tensor}': {self.role} {self.grid_text}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams):
            return NotImplemented
        return (
            self.same_grid(other)
            and (self.tensor, self.qtype, self.role) == (other.tensor, other.qtype, other.role)
            and self.readers == other.readers
        )

    __hash__ = None  # type: ignore[assignment]

    # -- JSON -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """A JSON object; floats are the exact decimal form of the float32 value."""
        out: dict[str, Any] = {
            "tensor": self.tensor,
            "role": str(self.role),
            "type": self.qtype.name,
            "scale": self.scale.tolist(),
            "zero_point": self.zero_point.tolist(),
            "lo": self.lo,
            "hi": self.hi,
        }
        if self.axis is not None:
            out["axis"] = self.axis
        if self.block:
            out["block"] = self.block
        if self.readers is not None:
            out["readers"] = [list(r) for r in self.readers]
        if self.source:
            out["source"] = self.source
        return out

    @classmethod
    def from_json(cls, row: Any) -> QParams:
        """Inverse of `to_json`."""
        with rejecting():
            entry = row_entry(row)
            entry.only(_REQUIRED, _OPTIONAL)
            return cls(
                tensor=entry.text("tensor"),
                qtype=qtype(entry.text("type")),
                scale=entry.array("scale"),
                zero_point=entry.whole_array("zero_point"),
                role=role_of(entry),
                readers=readers_of(entry),
                source=entry.text("source") if "source" in entry.value else "",
                **{key: entry.integer(key) for key in _INTEGERS if key in entry.value},
            )


_REQUIRED = ("tensor", "type", "scale", "zero_point")
_INTEGERS = ("axis", "block", "lo", "hi")
_OPTIONAL = (*_INTEGERS, "role", "readers", "source")


def _ends(values: Array) -> tuple[float, float]:
    """Smallest and largest element."""
    if not values.ndim:
        one = values.item()
        return one, one
    return np.minimum.reduce(values, axis=None), np.maximum.reduce(values, axis=None)


def _first(values: Array) -> object:
    return values.reshape(-1)[0].item() if values.size else "?"
