"""The windows a convolution or pooling operator moves over its input.

Along one dimension of size n, with kernel k, dilation d, stride s and padding b before and e
after, a window covers (k - 1) * d + 1 elements and there are

    floor((n + b + e - (k - 1) * d - 1) / s) + 1

of them; with ceil_mode the division rounds up, unless the last window would start in the padding
after the elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Windows:
    """Windows over the dimensions after batch and channels."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    """Padding after the elements, including what ceil_mode adds."""
    output: tuple[int, ...]
    padding: tuple[int, ...]
    """Padding after the elements, as the operator states it."""

    @classmethod
    def of(
        cls, attributes: Mapping[str, Any], size: Sequence[int], kernel: Sequence[int]
    ) -> Windows:
        """The windows that the attributes of an operator specify."""
        rank = len(size)
        strides = tuple(attributes.get("strides", (1,) * rank))
        dilations = tuple(attributes.get("dilations", (1,) * rank))
        mode = attributes.get("auto_pad", "NOTSET")
        mode = mode.decode() if isinstance(mode, bytes) else mode
        pads = tuple(attributes.get("pads", (0,) * (2 * rank)))
        begins, ends, output, padding = [], [], [], []
        for i, (n, k, s, d) in enumerate(zip(size, kernel, strides, dilations, strict=True)):
            cover = (k - 1) * d + 1
            begin, end = (pads[i], pads[rank + i]) if mode == "NOTSET" else (0, 0)
            if mode.startswith("SAME"):
                # Negative if the stride leaves elements out: onnxruntime then crops, and like C it
                # rounds towards zero.
                whole = (-(-n // s) - 1) * s + cover - n
                begin = int((whole if mode == "SAME_UPPER" else whole + 1) / 2)
                end = whole - begin
            room = n + begin + end - cover
            count = room // s + 1
            if attributes.get("ceil_mode") and room % s and count * s < n + begin:
                count += 1
            begins.append(begin)
            padding.append(end)
            ends.append(max(end, (count - 1) * s + cover - n - begin))
            output.append(count)
        return cls(
            *(tuple(size), tuple(kernel), strides, dilations),
            *(tuple(begins), tuple(ends), tuple(output), tuple(padding)),
        )

    @property
    def count(self) -> int:
        """The number of windows."""
        return int(np.prod(self.output, dtype=np.int64))

    def pad(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """`values` with zeros around its last dimensions, cropped where padding is negative."""
        before = [(0, 0)] * (values.ndim - len(self.size))
        widths = before + list(zip(self.begins, self.ends, strict=True))
        kept = tuple(slice(max(-b, 0), min(e, 0) or None) for b, e in widths)
        return np.pad(values[kept], [(max(b, 0), max(e, 0)) for b, e in widths])

    def counted(self, padding: bool) -> npt.NDArray[np.float64]:
        """1 where an element counts in an average, with or without the stated padding."""
        if not padding:
            return self.pad(np.ones(self.size))
        extra = [e - p for e, p in zip(self.ends, self.padding, strict=True)]
        whole = [b + n + p for b, n, p in zip(self.begins, self.size, self.padding, strict=True)]
        return np.pad(np.ones(whole), [(0, e) for e in extra])

    def slices(self, offset: Sequence[int]) -> tuple[slice, ...]:
        """The places of element `offset` of every window in the padded input."""
        return tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offset, self.dilations, self.output, self.strides, strict=True)
        )
