"""Permute's numbers for orders of axes.

A blob has the axes w, h, d and c, of which w is the innermost. Orders are numbered; their names
list the axes that become w, h, d and c.
"""

from __future__ import annotations

_NAMES = {
    1: "W",
    2: "WH HW",
    3: "WHC HWC WCH CWH HCW CHW",
    4: "WHDC HWDC WDHC DWHC HDWC DHWC WHCD HWCD WCHD CWHD HCWD CHWD "
    "WDCH DWCH WCDH CWDH DCWH CDWH HDCW DHCW HCDW CHDW DCHW CDHW",
}
_AXES = {1: "W", 2: "HW", 3: "CHW", 4: "CDHW"}
"""The letters of a tensor's axes after the batch, from the first."""


def number_of(order: tuple[int, ...]) -> int:
    """The number of an order, given as for ONNX's Transpose but without the batch."""
    axes = _AXES[len(order)]
    return _NAMES[len(order)].split().index("".join(axes[i] for i in reversed(order)))


def order_of(number: int, rank: int) -> tuple[int, ...] | None:
    """The inverse of `number_of`; None where there is no such order."""
    names = _NAMES.get(rank, "").split()
    if not 0 <= number < len(names):
        return None
    return tuple(_AXES[rank].index(letter) for letter in reversed(names[number]))
