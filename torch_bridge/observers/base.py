r"""The base of all observers: see tensors, keep a bounded statistic, give scale and zero point.

A batch goes through three steps; a subclass overrides those it needs:

    extremes    min and max of the batch, per tensor, channel or block   (here, checked for NaN)
    propose     the range that this batch alone asks for
    merge       that range joined with the ranges of earlier batches

In a distributed run every step works on the statistics of *all* processes, reduced while the
batch is observed. So the state is the same on every process at any time (even if wrappers
broadcast buffers), and equals that of one process that sees whole batches; `calculate` needs no
communication. Hence observing is a collective: every process observes equally often, and a process
without data passes an empty tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from onnxq.errors import OptionError, QParamsError
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers import scales
from torch_bridge.observers.reduce import largest

_EMPTY, _FINITE, _BROKEN = 0.0, 1.0, 2.0


class Observer(nn.Module):
    """Base of all observers; by itself the running minimum and maximum.

    Args:
        spec: The quantizer that the statistic is for.

    Attributes:
        name: Its name in messages, set by its owner.
        start: Where values of a parameter of zeros are expected, -start..start; None for where
            torch's own layers start.
        gain: What the values of a weight are multiplied with in the file, as its owner last knew.
    """

    observer: ClassVar[str] = ""
    """Its name in the registry; each class has its own."""
    only_a_start: ClassVar[bool] = False
    """Whether its scale is a start for learning, and not one to keep."""

    min_val: Tensor
    max_val: Tensor
    batches: Tensor

    def __init__(self, spec: QuantizerSpec) -> None:
        super().__init__()
        self.spec = spec
        self.name = ""
        self.start: float | None = None
        self.gain: Tensor | None = None
        self._initial: dict[str, Tensor] = {}
        self.remember("min_val", torch.tensor(torch.inf))
        self.remember("max_val", torch.tensor(-torch.inf))
        self.remember("batches", torch.tensor(0))
        self.register_load_state_dict_pre_hook(_take_sizes)  # type: ignore[no-untyped-call]

    # -- methods that subclasses override -----------------------------------------------------

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range this batch asks for.

        Args:
            rows: This process's values, float32, shape (*S, n). S is () per tensor and (C,) per
                channel; n is 0 if only other processes have data.
            low: Minimum over all processes, shape S.
            high: Maximum over all processes, shape S.
        """
        return low, high

    def merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range after a batch that asked for `low`..`high`."""
        return torch.minimum(self.min_val, low), torch.maximum(self.max_val, high)

    def range(self) -> tuple[Tensor, Tensor]:
        """The range to quantize."""
        return self.min_val, self.max_val

    def scale(self) -> Tensor:
        """The scale in float64, positive and finite."""
        return scales.scale_of(*self.range(), self.spec)

    def grid(self) -> tuple[Tensor, Tensor]:
        """The scale in float64 and the zero point in int32."""
        scale = self._one_tensor("scale", self.scale())
        return scale, scales.zero_point_of(self.range()[0], scale, self.spec)

    # -- methods that owners call -------------------------------------------------------------

    @torch.no_grad()
    def forward(self, x: Tensor) -> None:
        """Include `x` in the statistic; an empty tensor changes nothing."""
        rows = self._filled(self._rows(x.detach().float()), x)
        low, high, state = self._extremes(rows)
        if state == _BROKEN:
            raise self._not_finite(x)
        if state == _EMPTY:
            return
        proposed = self._pair("propose", self.propose(rows, low, high), low.shape)
        self.min_val, self.max_val = self._pair("merge", self.merge(*proposed), low.shape)
        self.batches = self.batches + 1

    @torch.no_grad()
    def calculate(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point (int32, within lo..hi), both of shape S."""
        if not self.ready:
            raise self._error("has not seen any data", "run calibration batches through the model")
        if not self.spec.per_channel and self.min_val.ndim:
            raise self._error(
                f"has {self.min_val.numel()} ranges, but quantizes per tensor",
                "load a checkpoint of the same scheme, or call reset() and calibrate again",
            )
        low, high = self._pair("range", self.range(), self.min_val.shape)
        if not (low.any() or high.any() or self.only_zeros):
            raise self._error(
                "got 0..0 from range(), though the data is not 0",
                f"range() of {type(self).__name__} must return the range to quantize",
            )
        scale, zero_point = self._usable(self.grid())
        return scale.float(), zero_point.to(torch.int32)

    @property
    def ready(self) -> bool:
        """Whether it has seen data."""
        return bool(self.batches > 0)

    @property
    def only_zeros(self) -> bool:
        """Whether its range is 0..0, of which no scale follows."""
        return not bool(self.min_val.any() or self.max_val.any())

    @property
    def negative(self) -> bool:
        """Whether its range holds negative values."""
        return bool((self.min_val < 0).any())

    def reset(self) -> None:
        """Forget everything."""
        for name, value in self._initial.items():
            setattr(self, name, value.to(self.batches.device, copy=True))

    def size_for(self, size: tuple[int, ...]) -> None:
        """Give the state the size that it will have with scales of this shape.

        Averages of a model copy the buffers of another one, and need the same sizes before and
        after calibration.
        """
        for name, value in self._initial.items():
            if name != "batches":
                self._initial[name] = value.expand(*size, *value.shape)
        self.reset()

    # -- parts --------------------------------------------------------------------------------

    def remember(self, name: str, initial: Tensor) -> None:
        """Make `name` part of the state, saved in checkpoints and restored by `reset`."""
        if not isinstance(initial, Tensor):
            raise OptionError(
                f"the {type(self).__name__} observer remembers {initial!r} as '{name}'",
                fix=f"give a tensor: self.remember('{name}', torch.tensor({initial!r}))",
            )
        self._initial[name] = initial
        self.register_buffer(name, initial.clone())

    def _filled(self, rows: Tensor, x: Tensor) -> Tensor:
        """The rows of a parameter, those of zeros filled as torch fills a new layer.

        A layer that starts as 0 says nothing of the values it will learn. They are expected where
        torch's own layers start, uniform in ±1/√n with n inputs per output: a scale for zeros would
        be so small that every learned weight is clipped, and gets no gradient.
        """
        if not self.spec.parameter or not rows.numel():
            return rows
        empty = ~rows.any(-1, keepdim=True)
        if not bool(empty.any()):
            return rows
        bound = self.start or (x[0].numel() if x.dim() > 1 else 1) ** -0.5
        return torch.where(empty, torch.linspace(-bound, bound, rows.shape[-1]).to(rows), rows)

    def _rows(self, x: Tensor) -> Tensor:
        """`x` as (*S, n): one row for each scale."""
        axis = self.spec.axis
        if axis is None:
            return x.reshape(-1)
        if not x.numel() and self.min_val.ndim:
            return x.new_empty(*self.min_val.shape, 0)
        if not -x.ndim <= axis < x.ndim:
            raise self._error(
                f"has its scales along axis {axis}, which shape {list(x.shape)} does not have",
                "quantize this tensor with one scale, or along one of its axes",
            )
        if self.spec.block:
            rows = self._block_rows(x, axis % x.ndim)
        else:
            n = x.numel() // x.shape[axis] if x.shape[axis] else 0
            rows = x.movedim(axis, 0).reshape(x.shape[axis], n)
        if self.min_val.ndim and self.min_val.shape != rows.shape[:-1]:
            raise self._error(
                f"has seen {list(self.min_val.shape)} channels, and now {[*rows.shape[:-1]]}",
                "call reset() before observing another tensor",
            )
        return rows

    def _block_rows(self, x: Tensor, axis: int) -> Tensor:
        size, block = x.shape[axis], self.spec.block
        if size % block:
            raise self._error(
                f"has blocks of {block}, which do not divide axis {axis} of shape {list(x.shape)}",
                "choose a block size that divides the axis",
            )
        split = (*x.shape[:axis], size // block, block, *x.shape[axis + 1 :])
        return x.reshape(split).movedim(axis + 1, -1)

    def _extremes(self, rows: Tensor) -> tuple[Tensor, Tensor, float]:
        """Minimum and maximum over all processes, and whether there is data and it is finite."""
        shape = rows.shape[:-1]
        if rows.numel():
            low, high = torch.aminmax(rows, dim=-1)  # NaN and infinity propagate
            finite = torch.isfinite(low).all() & torch.isfinite(high).all()
            state = torch.where(finite, _FINITE, _BROKEN)
        else:
            low = rows.new_full(shape, torch.inf)
            high, state = -low, rows.new_tensor(_EMPTY)
        # One reduction for all three. It includes the state, so all processes raise together;
        # if only one raised, the others would wait for it forever.
        packed = largest(torch.cat([-low.flatten(), high.flatten(), state.float().reshape(1)]))
        rest, state = packed[:-1], packed[-1]
        half = len(rest) // 2
        return -rest[:half].reshape(shape), rest[half:].reshape(shape), state.item()

    def _pair(self, method: str, found: Any, shape: torch.Size) -> tuple[Tensor, Tensor]:
        """What a method of a subclass gave, if it is a range: (low, high), one for each scale."""
        fix = f"{method}() of {type(self).__name__} must return (low, high), one value per scale"
        tensors = isinstance(found, tuple | list) and all(isinstance(f, Tensor) for f in found)
        if not tensors or len(found) != 2:
            words = [type(f).__name__ for f in found] if isinstance(found, tuple) else found
            is_one = isinstance(found, Tensor)
            given = "one tensor" if is_one else "None" if found is None else f"{words}"
            raise self._error(f"got {given} from {method}(), not two tensors", fix)
        low, high = found
        if low.shape != shape or high.shape != shape:
            shapes = f"{list(low.shape)} and {list(high.shape)}"
            raise self._error(f"got shapes {shapes} from {method}(), not {list(shape)}", fix)
        if not bool((low <= high).all()):
            broken = "NaN" if bool((low.isnan() | high.isnan()).any()) else "low > high"
            raise self._error(f"got {broken} from {method}(), though the data is finite", fix)
        return low, high

    def _one_tensor(self, method: str, found: Any) -> Tensor:
        """What a method of a subclass gave, if it is one positive number per scale."""
        fix = f"{method}() of {type(self).__name__} must return a float64 tensor of positive scales"
        if not isinstance(found, Tensor):
            raise self._error(f"got a {type(found).__name__} from {method}(), not a tensor", fix)
        if found.shape != self.min_val.shape:
            shapes = f"{list(found.shape)} from {method}(), not {list(self.min_val.shape)}"
            raise self._error(f"got shape {shapes}", fix)
        if not bool((torch.isfinite(found) & (found > 0)).all()):
            raise self._error(f"got a scale from {method}() that is not positive and finite", fix)
        return found

    def _usable(self, found: Any) -> tuple[Tensor, Tensor]:
        """What `grid` gave, if it is scales and whole zero points among the codes."""
        kind, spec = type(self).__name__, self.spec
        fix = f"grid() of {kind} must return (scale, zero_point), two tensors, a value per scale"
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise self._error("got no pair from grid()", fix)
        scale, zero_point = self._one_tensor("grid", found[0]), found[1]
        if not isinstance(zero_point, Tensor) or zero_point.shape != scale.shape:
            raise self._error("got no tensor of zero points from grid(), one for each scale", fix)
        if spec.symmetric and bool(zero_point.any()):
            given = zero_point[zero_point != 0].flatten()[0].item()
            raise self._error(
                f"got the zero point {given:g} from grid(), but its quantizer is symmetric",
                f"let grid() of {kind} return zeros where self.spec.symmetric is True",
            )
        inside = (zero_point >= spec.lo) & (zero_point <= spec.hi)
        if not bool((inside & (zero_point == zero_point.round())).all()):
            given = zero_point[~(inside & (zero_point == zero_point.round()))].flatten()[0].item()
            raise self._error(
                f"got the zero point {given:g} from grid(), which is no code",
                f"{fix}; zero points are whole numbers from {spec.lo} to {spec.hi}",
            )
        return scale, zero_point

    def _not_finite(self, x: Tensor) -> QParamsError:
        nan, inf = int(x.isnan().sum()), int(x.isinf().sum())
        if nan or inf:
            found = f"{nan} NaN and {inf} infinite of {x.numel()} values"
        elif torch.isfinite(x).all() and not torch.isfinite(x.float()).all():
            found = "values beyond float32"
        else:
            found = "NaN or infinite values on another process"
        return self._error(
            f"got {found} (shape {list(x.shape)})",
            "find the layer or sample that makes them (torch.autograd.set_detect_anomaly helps "
            "in training), or leave this tensor unquantized",
        )

    def _error(self, what: str, fix: str) -> QParamsError:
        whose = f" of '{self.name}'" if self.name else ""
        return QParamsError(f"the {type(self).__name__} observer{whose} {what}", fix=fix)

    def extra_repr(self) -> str:
        """The text that `print(model)` shows."""
        return f"{self.name!r}, batches={int(self.batches)}" if self.name else ""


def _take_sizes(module: Observer, state_dict: Mapping[str, Any], prefix: str, *_: object) -> None:
    """Give each buffer the size that it has in the checkpoint, before that is loaded."""
    for name in module._initial:
        saved, buffer = state_dict.get(prefix + name), getattr(module, name)
        if isinstance(saved, Tensor) and saved.shape != buffer.shape:
            setattr(module, name, buffer.new_zeros(saved.shape))
