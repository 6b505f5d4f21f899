r"""Ranges as `onnxq quantize` chooses them, from the same statistics by the same functions.

    ByMethod          of activations: `onnxq.observing.tensor_statistics` of every call, merged
                      exactly, and a method of `onnxq.observing.range_methods`
    WeightByMethod    of weights: `onnxq.calibration.weight_ranges` of the values seen last

Scale and zero point come from `onnxq.quant.grid_of_range`, so the same values give the same
numbers as on the ONNX side. One call is one sample. In a distributed run the batch of each process
is a sample of its own: counts and sums are exact, so their order does not matter.

torch adds in another order than onnxruntime, so values differ in their last bits. If they are those
that a recipe was made with except for that, the grid is the one that the recipe records.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from onnxq.calibration.observed_range import observed_range
from onnxq.calibration.recorded_grids import GridRecord, Look
from onnxq.calibration.weight_ranges import chosen_method, weight_range
from onnxq.errors import OptionError
from onnxq.observing.range_methods import Method
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.qparams import Array
from onnxq.quant.scheme import QSpec
from torch_bridge.arithmetic.spec import QuantizerSpec
from torch_bridge.observers.base import Observer
from torch_bridge.observers.reduce import gathered


class _OnnxqGrid(Observer):
    """An observer whose grid is that of `onnxq quantize`.

    Args:
        logarithmic: Whether the quantizer takes only the largest magnitude from the range.
        record: The grids of a recipe.
    """

    def __init__(
        self, spec: QuantizerSpec, *, logarithmic: bool = False, record: GridRecord | None = None
    ) -> None:
        super().__init__(spec)
        self.logarithmic = logarithmic
        self.record = record or GridRecord()

    def recorded(
        self, look: Callable[[], Look], method: str, own: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        """The recorded range of values of this look, or their `own`."""
        if self.logarithmic or not self.record:
            return own
        return self.record.find(look(), self.rules, method, own) or own

    @cached_property
    def rules(self) -> QSpec:
        """The codes of the quantizer, in the form that methods take."""
        spec = self.spec
        return QSpec(
            (spec.qtype.name,),
            symmetric=spec.symmetric,
            per_channel=spec.per_channel,
            lo=spec.lo,
            hi=spec.hi,
            power_of_two=spec.power_of_two,
        )

    def grid(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point of the range."""
        if self.logarithmic:
            return super().grid()
        low, high = (end.cpu().numpy() for end in self.range())
        scale, zero_point = grid_numbers(low, high, self.rules)
        device = self.batches.device
        return _tensor(scale, device), _tensor(zero_point, device).to(torch.int32)


class ByMethod(_OnnxqGrid):
    """The range of an activation by a method of `onnxq quantize`.

    Args:
        method: As text: 'min-max', 'percentile:99.99', 'mse' ...
        rows: The axis that a Softmax sums over, if one reads the tensor.
        record: The grids of a recipe.
    """

    def __init__(
        self,
        spec: QuantizerSpec,
        *,
        method: str,
        rows: int | None = None,
        logarithmic: bool = False,
        record: GridRecord | None = None,
    ) -> None:
        super().__init__(spec, logarithmic=logarithmic, record=record)
        self.method = Method.parse(method)
        if spec.per_channel:
            raise OptionError(
                f"the method '{self.method}' finds one range per tensor",
                fix="leave the method out, or make the quantizer per tensor",
            )
        self._wanted = Wanted(rows=rows)
        # Not buffers: their sizes follow the data, and averages of a model copy buffers by size.
        self._seen = TensorStatistics(self._wanted)

    @torch.no_grad()
    def forward(self, x: Tensor) -> None:
        """Include `x` in the statistics; an empty tensor changes nothing."""
        super().forward(x)  # refuses what is not finite, on all processes
        batch = TensorStatistics(self._wanted)
        batch.add(x.detach().float().cpu().numpy())
        for state in gathered(batch.state()):
            self._seen.merge(TensorStatistics.from_state(self._wanted, state))

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._seen = TensorStatistics(self._wanted)

    def range(self) -> tuple[Tensor, Tensor]:
        """The range by the method, in float64."""
        seen = self._seen
        own = observed_range(seen, self.rules, self.method)
        look = partial(Look.of_activation, seen, self.method)
        low, high = self.recorded(look, str(self.method), (own.low, own.high))
        device = self.batches.device
        return _tensor(low, device), _tensor(high, device)

    def get_extra_state(self) -> Tensor:
        """The statistics as a tensor, which any checkpoint format can hold."""
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **self._seen.state())
        return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the statistics of a checkpoint."""
        with np.load(io.BytesIO(bytes(state.tolist())), allow_pickle=False) as arrays:
            self._seen = TensorStatistics.from_state(self._wanted, dict(arrays))


class WeightByMethod(_OnnxqGrid):
    """The range of a weight by a method of `onnxq quantize`: of the values seen last.

    Args:
        method: 'min-max' or 'mse'; None for what suits the number of bits.
        record: The grids of a recipe.
    """

    def __init__(
        self,
        spec: QuantizerSpec,
        *,
        method: str | None = None,
        logarithmic: bool = False,
        record: GridRecord | None = None,
    ) -> None:
        super().__init__(spec, logarithmic=logarithmic, record=record)
        if spec.block:
            raise OptionError(
                "a method for weights finds one range per tensor or channel",
                fix="leave the method out, or choose no blocks",
            )
        self.method = chosen_method(self.rules, method)
        self.remember("min_val", torch.tensor(torch.inf, dtype=torch.float64))
        self.remember("max_val", torch.tensor(-torch.inf, dtype=torch.float64))

    def propose(self, rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The range of the weight, in float64."""
        if not rows.numel():
            return low.double(), high.double()
        axis = 0 if self.spec.per_channel else None
        # A recipe knows the weight of the file, which has the gain of a batch norm in it.
        gain = self.gain if self.gain is not None else torch.ones((), device=rows.device)
        file_rows = rows * (gain[:, None] if gain.dim() else gain)
        values = file_rows.cpu().numpy()
        own = weight_range(values, axis, self.rules, self.method)[:2]
        ends = self.recorded(partial(Look.of_weight, values, axis), self.method, own)
        low, high = (_tensor(end, rows.device) / gain.double() for end in ends)
        return low, high

    def merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """That of the values seen last: a weight is one value, and not a stream."""
        return low, high


def _tensor(values: Array, device: torch.device) -> Tensor:
    return torch.tensor(values, device=device)
