"""The base of all quantizers: two switches, a range from an observer, a grid for ONNX.

While observing, a quantizer takes its range from its observer. While quantizing, it rounds to the
grid, with the gradients of its algorithm. Otherwise it returns its input. A new quantizer does
neither.

`scale` and `zero_point` always describe the grid in use: `refresh` derives them from the learned
parameters before every call, and when the module is put into eval mode. Exporters read only these
two, so every algorithm becomes one `onnxq::FakeQuantize` node (after `transform`, for the few that
do not round their input itself). Only the logarithmic grid has a node of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from onnxq.errors import OnnxqError, OptionError, QParamsError
from onnxq.quant.qparams import QParams
from torch_bridge.arithmetic.functional import fake_quantize
from torch_bridge.arithmetic.onnx_node import is_export
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.fake_quant import saved_state
from torch_bridge.fake_quant.usable_grid import grid_fault
from torch_bridge.observers.base import Observer

SMALLEST_SCALE = torch.finfo(torch.float32).eps
"""Learned scales are at least this: 0 cannot divide, and a negative scale mirrors the grid."""


class FakeQuantize(nn.Module):
    """Base of the quantizers.

    Args:
        spec: codes, symmetry and granularity.
        observer: finds the range; see `torch_bridge.observers`.
        name: the path of the tensor it quantizes, for messages.

    Attributes:
        observing: whether the range follows the observer.
        quantizing: whether values are rounded.
        initialised: whether there is a range.
        spends_gradient: whether dx may overwrite dy, set by a layer that alone reads the result
            and computes its gradient into new memory.
    """

    algorithm: ClassVar[str] = ""
    """Its name in the registry."""
    learns_any_scale: ClassVar[bool] = False
    """Whether training moves the scale freely, so it cannot stay a power of two."""
    symmetric_only: ClassVar[bool] = False
    """Whether zero points are always 0."""
    ranges_per: ClassVar[tuple[str, ...]] = ("tensor", "channel", "block")
    """The granularities that the algorithm supports."""
    per_element: ClassVar[frozenset[str]] = frozenset()
    """Parameters with a value for each element of the tensor, not for each scale."""
    weights_only: ClassVar[bool] = False
    """Whether it needs the whole tensor, which an activation never is."""
    takes_gain: ClassVar[bool] = True
    """Whether `scale` describes the grid, so that a gain can be moved into it."""
    powers_of_two: ClassVar[bool] = False
    """Whether scales are powers of two, whatever the spec requires."""
    switches: ClassVar[tuple[str, ...]] = ("observing", "quantizing", "initialised")
    """Attributes that are true or false and belong in checkpoints."""

    scale: Tensor
    zero_point: Tensor
    calibrated_scale: Tensor

    def __init__(self, spec: QuantizerSpec, observer: Observer, name: str = "") -> None:
        super().__init__()
        self._check(spec)
        self.spec = spec
        self.observer = observer
        self.name = name
        # Plain attributes, since compilers and exporters specialise on them.
        self.observing = False
        self.quantizing = False
        self.initialised = False
        self.spends_gradient = False
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("zero_point", torch.zeros((), dtype=torch.int32))
        # Copied with the buffers, as averages of a model do: see `adopt_range`.
        self.register_buffer("calibrated_scale", torch.full((), torch.nan), persistent=False)
        # Not a buffer: those of a copy made before the first call would be fewer.
        self.gain: Tensor | None = None
        self.recipe = ""  # that of its model, if this is the first quantizer
        self.may_be_zero = False  # its owner knows whether zeros alone tell a fault
        self.is_own = not type(self).__module__.startswith("torch_bridge.")  # code of a user
        self.register_load_state_dict_pre_hook(saved_state.fit)  # type: ignore[no-untyped-call]
        self.set_up()

    def _check(self, spec: QuantizerSpec) -> None:
        if spec.power_of_two and self.learns_any_scale:
            raise OptionError(
                f"'{self.algorithm}' learns scales that are not powers of two",
                fix="choose 'tqt', which learns the power, or 'fixed'",
            )
        asked = "block" if spec.block else "channel" if spec.per_channel else "tensor"
        if asked not in self.ranges_per or (self.symmetric_only and not spec.symmetric):
            symmetry = "symmetric and " if self.symmetric_only else ""
            per_tensor = asked == "channel" and "tensor" in self.ranges_per
            how = f'{{"algorithm": "{self.algorithm}", "per_channel": False}}'
            raise OptionError(
                f"'{self.algorithm}' cannot be {spec}",
                fix=f"make the spec {symmetry}per {' or '.join(self.ranges_per)}"
                + (f", such as weight={how}" if per_tensor else ""),
            )

    # -- methods that algorithms override -----------------------------------------------------

    def set_up(self) -> None:
        """Add the parameters and buffers of the algorithm."""

    def quantize(self, x: Tensor) -> Tensor:
        """`x` on the grid, with the gradients of the algorithm."""
        return self.on_grid(self.to_round(x))

    def transform(self, x: Tensor) -> Tensor:
        """The tensor to round: `x` itself, unless the algorithm changes it first."""
        return x

    def follow(self, x: Tensor) -> None:
        """Take over what the grid depends on, for the algorithms whose grid follows the tensor."""

    def refresh(self) -> None:
        """Clamp the learned parameters to their domain and derive scale and zero point."""

    def set_range(self, scale: Tensor, zero_point: Tensor) -> None:
        """Start from this grid."""
        self._require_usable(scale)
        self._set("scale", scale)
        self._set("zero_point", zero_point)
        self.initialised = True

    # -- methods of all quantizers -------------------------------------------------------------

    def size_for(self, shape: Sequence[int]) -> Self:
        """Resize the tensors with one value per scale for a tensor of `shape`.

        The first range resizes them, too. But wrappers made before that (DistributedDataParallel)
        allocate memory by the sizes of parameters, which must not change afterwards.
        """
        axis, block = self.spec.axis, self.spec.block
        if axis is None:
            return self
        size: tuple[int, ...] = (shape[axis],)
        if block:
            size = tuple(
                -(-n // block) if d == axis % len(shape) else n for d, n in enumerate(shape)
            )
        for name, current in self._own_tensors():
            if current.dim() == 0:
                self._set(name, current.detach().expand(size))
        if not self.observer.ready:
            self.observer.size_for(size)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device, but keep the types: scales need more than half precision.

        A model may compute in bfloat16 or float64; its grids are those of the file, in float32.
        """

        def moved(tensor: Tensor) -> Tensor:
            made = fn(tensor)
            return made if made.dtype == tensor.dtype else tensor.to(made.device)

        if self.gain is not None:
            self.gain = moved(self.gain)
        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self

    def forward(self, x: Tensor, gain: Tensor | None = None) -> Tensor:
        """Observe if `observing`, and quantize if `quantizing`.

        With a `gain` per scale (or one for all) the result is multiplied by it: the tensor and the
        grid of the file are those of this quantizer times the gain.
        """
        if gain is not None and not is_export():  # exporters refuse to see attributes change
            self.gain = gain.detach()
        if self.observing:
            self.observe(x)
        if not self.quantizing:
            return x if gain is None else x * self.spread(gain, x)
        self._require_range()
        if not is_export():
            self.follow(x)
            self.refresh()
            if self.is_own and not torch.compiler.is_compiling():
                self._require_grid()
            if gain is None:
                return self._like(x, self.quantize(x), "quantize")
            # In training without gradients, too: a checkpoint's two passes must agree.
            if self.training or torch.is_grad_enabled():
                return self._like(x, self.quantize(x), "quantize") * self.spread(gain, x)
        # As the file computes it, to the last bit.
        return self.on_grid(self.to_round(x, gain), gain)

    def to_round(self, x: Tensor, gain: Tensor | None = None) -> Tensor:
        """The tensor that the file rounds."""
        changed = self._like(x, self.transform(x), "transform")
        return changed if gain is None else changed * self.spread(gain, x)

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Include the range of `x`."""
        self.observer.gain = self.gain
        try:
            self.observer(x.detach())
            if not self.observer.ready:  # only empty tensors so far
                return
            self._require_range_seen()
            scale, zero_point = self.observer.calculate()
        except OnnxqError as error:
            error.add_note(f"in the quantizer '{self.name or '?'}' ({self.algorithm})")
            raise
        self._set("calibrated_scale", scale)
        self.set_range(scale, zero_point)
        if not self.initialised:
            raise self._error(
                f"({self.algorithm}) has no range after set_range(scale, zero_point)",
                f"call super().set_range(scale, zero_point) in set_range of {type(self).__name__}",
            )

    def adopt_range(self) -> bool:
        """Start from the range in buffers that were copied from a calibrated model, if they were.

        A copy made before calibration and averaged since has learned parameters that are averages
        with the values they had before there was a range.
        """
        if self.initialised or not bool(torch.isfinite(self.calibrated_scale).all()):
            return False
        self.set_range(self.calibrated_scale, self.zero_point)
        return True

    def on_grid(self, x: Tensor, gain: Tensor | None = None) -> Tensor:
        """`x` rounded with the current scale (times `gain`) and zero point, straight-through."""
        if gain is None:
            return fake_quantize(x, self.scale, self.zero_point, self.spec.grid)
        scale = self.scale * gain
        return fake_quantize(x, scale, self.zero_point.expand(scale.shape), self.spec.grid)

    @torch.no_grad()
    def qparams(self, tensor: str) -> QParams:
        """The grid of the file, for the tensor of that name."""
        self._require_range()
        self.refresh()
        self._require_grid()
        self._require_powers_of_two()
        scale = (self.scale if self.gain is None else self.scale * self.gain).detach().cpu()
        zero_point = self.zero_point.detach().cpu().expand(scale.shape)
        axis = self.spec.axis
        if scale.numel() == 1 and not self.spec.block and axis is not None:
            # a per-tensor checkpoint, or a single channel
            axis = axis if scale.dim() else None
            scale, zero_point = scale.reshape(-1), zero_point.reshape(-1)
        return QParams(
            tensor=tensor,
            qtype=self.spec.qtype,
            scale=scale.numpy(),
            zero_point=zero_point.numpy(),
            axis=axis,
            block=self.spec.block,
            lo=self.spec.lo,
            hi=self.spec.hi,
            source=self.name,
        )

    def train(self, mode: bool = True) -> Self:
        """Switch to training or evaluation."""
        super().train(mode)
        if not mode and self.initialised:
            self.refresh()
        return self

    @property
    def name(self) -> str:
        """The name of this quantizer in messages."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        self.observer.name = name

    def extra_repr(self) -> str:
        """The text that `print(model)` shows."""
        does = [w for w, on in (("observes", self.observing), ("quantizes", self.quantizing)) if on]
        return f"{self.spec}; {' and '.join(does) or 'off'}"

    # -- parts --------------------------------------------------------------------------------

    def learn(self, name: str, initial: Tensor) -> None:
        """Make `name` a parameter; a buffer of that name becomes one."""
        if hasattr(self, name):
            delattr(self, name)
        self.register_parameter(name, nn.Parameter(initial.clone()))

    def _set(self, name: str, value: Tensor) -> None:
        """Give a parameter or buffer a value of any size.

        A parameter stays the same object, since optimizers hold it.
        """
        current = getattr(self, name)
        value = value.detach().to(current.device, current.dtype, copy=True)
        if isinstance(current, nn.Parameter):
            current.data = value
        else:
            setattr(self, name, value)

    def _like(self, x: Tensor, found: Tensor, method: str) -> Tensor:
        """What a method of an algorithm gave, if it is a tensor of the shape of `x`."""
        if is_export():  # sizes are symbols, and a run before has shown it
            return found
        if not isinstance(found, Tensor) or found.shape != x.shape:
            named = "None" if found is None else f"a {type(found).__name__}"
            given = f"shape {list(found.shape)}" if isinstance(found, Tensor) else named
            raise self._error(
                f"({self.algorithm}) got {given} from {method}(x) for x of shape {list(x.shape)}",
                f"{method}(x) of {type(self).__name__} must return a tensor of the shape of x",
            )
        return found

    def _is_watched(self) -> bool:
        """Whether a hook sees the values of this module, as torch determines in a call."""
        return bool(
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
        )

    def _own_tensors(self) -> list[tuple[str, Tensor]]:
        return [*self.named_parameters(recurse=False), *self.named_buffers(recurse=False)]

    def spread(self, values: Tensor, x: Tensor) -> Tensor:
        """One value per scale, viewed so that it broadcasts against `x`."""
        return self.spec.grid.spread(values, x)

    def _require_usable(self, scale: Tensor) -> None:
        if not bool((torch.isfinite(scale) & (scale > 0)).all()):
            raise self._error(
                "observed a range whose scale is not positive and finite",
                "look for NaN or infinite values in the observed tensors",
            )

    def _require_range_seen(self) -> None:
        if self.observer.only_zeros and not (self.spec.parameter or self.may_be_zero):
            raise self._error(
                "observed only zeros, from which no range follows",
                "calibrate with data for which this tensor is not 0 everywhere, or exclude the "
                "layers that read it",
            )
        if self.spec.symmetric and self.spec.lo >= 0 and self.observer.negative:
            raise self._error(
                f"observed negative values, which {self.spec.qtype} with zero point 0 cannot hold",
                "give it a signed type, or a zero point (symmetric=False)",
            )

    def _require_grid(self) -> None:
        """Refuse a grid that no file can hold, as a learned one may become."""
        fault = grid_fault(self)
        if fault is not None:
            raise self._error(*fault)

    def _require_powers_of_two(self) -> None:
        """Refuse scales that an algorithm moved, though the target shifts by them."""
        if self.spec.power_of_two and not bool((self.scale.frexp().mantissa == 0.5).all()):
            kind = type(self).__name__
            raise self._error(
                f"({self.algorithm}) has scales that are not powers of two, as the target needs",
                f"set learns_any_scale = True in {kind}, so that prepare refuses '{self.algorithm}'"
                " for such targets, or round the scale in refresh()",
            )

    def _require_range(self) -> None:
        if not self.initialised:
            raise self._error(
                "has no range yet (uninitialised)",
                "run calibration data through the model while it observes, before it quantizes",
            )

    def _error(self, what: str, fix: str) -> QParamsError:
        return QParamsError(f"quantizer '{self.name or '?'}' {what}", fix=fix)

    def get_extra_state(self) -> Tensor:
        """Switches and text, as a checkpoint holds them."""
        return saved_state.pack(self)

    def set_extra_state(self, state: Tensor) -> None:
        """Set the switches as they were saved."""
        for name, value in zip(self.switches, saved_state.unpack(state).switches, strict=False):
            setattr(self, name, bool(value))
        if self.initialised:
            self._set("calibrated_scale", self.scale)
