"""Observers: statistics of a tensor, and the scale and zero point that follow from them.

Each is one file; its docstring holds the formula. A new one needs a file and an entry here. Those
of `by_method` have no name: rules and recipes ask for them by a method of `onnxq quantize`.
"""

from __future__ import annotations

from onnxq.errors import OptionError, near_matches
from torch_bridge.observers.base import Observer
from torch_bridge.observers.clip_std import ClipStd
from torch_bridge.observers.ema_minmax import EmaMinMax
from torch_bridge.observers.ema_mse import EmaMSE
from torch_bridge.observers.ema_quantile import EmaQuantile
from torch_bridge.observers.histogram_kl import HistogramKL
from torch_bridge.observers.lsq import LSQ
from torch_bridge.observers.lsq_plus import LSQPlus
from torch_bridge.observers.minmax import MinMax
from torch_bridge.observers.minmax_floor import MinMaxFloor
from torch_bridge.observers.mse import MSE
from torch_bridge.observers.percentile import Percentile
from torch_bridge.observers.pot_mode import PoTMode

__all__ = ["OBSERVERS", "Observer", "observer"]

OBSERVERS: dict[str, type[Observer]] = {
    "minmax": MinMax,
    "ema-minmax": EmaMinMax,
    "percentile": Percentile,
    "ema-quantile": EmaQuantile,
    "mse": MSE,
    "ema-mse": EmaMSE,
    "clip-std": ClipStd,
    "lsq": LSQ,
    "lsq-plus": LSQPlus,
    "minmax-floor": MinMaxFloor,
    "pot-mode": PoTMode,
    "histogram-kl": HistogramKL,
}
"""The observers by the names that schemes and options use."""


def observer(name: str) -> type[Observer]:
    """The observer of that name; an error lists near matches."""
    if name not in OBSERVERS:
        raise OptionError(f"there is no observer '{name}'", fix=near_matches(name, OBSERVERS))
    return OBSERVERS[name]
