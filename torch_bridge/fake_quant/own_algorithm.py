"""Checks of an algorithm that a program registers or a package provides."""

from __future__ import annotations

from onnxq.errors import OptionError, near_matches
from torch_bridge.fake_quant.base import FakeQuantize
from torch_bridge.registry import refuse_misspelt

GRANULARITIES = ("tensor", "channel", "block")
_OVERRIDDEN = ("quantize", "transform", "refresh", "set_range", "set_up", "follow")
"""Methods of which an algorithm overrides at least one."""
_ATTRIBUTES = (
    "learns_any_scale",
    "symmetric_only",
    "ranges_per",
    "per_element",
    "weights_only",
    "takes_gain",
    "powers_of_two",
)


def check_algorithm(kind: type[FakeQuantize]) -> None:
    """Raise if a class cannot be an algorithm of its own."""
    per = kind.ranges_per
    unknown = [each for each in per if each not in GRANULARITIES]
    if isinstance(per, str) or not per or unknown:
        near = f": {near_matches(str(unknown[0]), GRANULARITIES)}" if unknown else ""
        raise OptionError(
            f"'{kind.algorithm}' ({kind.__name__}) has ranges_per = {per!r}",
            fix=f"give a tuple of 'tensor', 'channel' and 'block'{near}",
        )
    refuse_misspelt(kind, FakeQuantize, _ATTRIBUTES)
    own = all(not vars(base).get("algorithm") for base in kind.__mro__[1:])
    if own and all(getattr(kind, name) is getattr(FakeQuantize, name) for name in _OVERRIDDEN):
        raise OptionError(
            f"'{kind.algorithm}' ({kind.__name__}) overrides none of {', '.join(_OVERRIDDEN)}: it "
            "is 'fixed' by another name",
            fix="define quantize(self, x), or look for a misspelt method",
        )
