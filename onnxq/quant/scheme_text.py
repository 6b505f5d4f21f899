"""The rules of a `QSpec` as text, so that a pass can take them as an option.

    int8/int4 symmetric per-channel blocks full-range power-of-two asymmetric:uint8 -127..127

Types come first, the preferred one at the start. The other words come in any order; lo..hi are the
codes of the preferred type that are used, 'asymmetric:' the types that may have any zero point if
there is one scale.
"""

from __future__ import annotations

import re
from typing import Any

from onnxq.errors import OptionError, near_matches
from onnxq.quant.qtypes import QTYPES
from onnxq.quant.scheme import QSpec

_WORDS = {
    "symmetric": "symmetric",
    "per-channel": "per_channel",
    "blocks": "blocks",
    "full-range": "full_range",
    "power-of-two": "power_of_two",
}
"""The words, and the field of QSpec that each one sets."""

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_ASYMMETRIC = "asymmetric:"


def rules_text(spec: QSpec) -> str:
    """The rules of `spec` as text, without those of training."""
    words = ["/".join(spec.types)]
    words += [word for word, name in _WORDS.items() if getattr(spec, name)]
    if spec.asymmetric:
        words.append(_ASYMMETRIC + "/".join(spec.asymmetric))
    lo, hi = spec.range
    if (lo, hi) != (spec.qtype.lo, spec.qtype.hi):
        words.append(f"{lo}..{hi}")
    return " ".join(words)


def parse_rules(text: str) -> QSpec:
    """Inverse of `rules_text`."""
    types, *words = text.split() or [""]
    for name in types.split("/"):
        if name not in QTYPES:
            raise OptionError(
                f"the rules '{text}' do not begin with types ('{name}' is not a type)",
                fix=near_matches(name, QTYPES),
            )
    fields: dict[str, Any] = {}
    for word in words:
        limits = _RANGE.fullmatch(word)
        if limits is not None:
            fields["lo"], fields["hi"] = int(limits[1]), int(limits[2])
        elif word.startswith(_ASYMMETRIC):
            fields["asymmetric"] = tuple(word.removeprefix(_ASYMMETRIC).split("/"))
            for name in fields["asymmetric"]:
                if name not in QTYPES:
                    raise OptionError(
                        f"the rules '{text}' contain '{word}' ('{name}' is not a type)",
                        fix=near_matches(name, QTYPES),
                    )
        elif word in _WORDS:
            fields[_WORDS[word]] = True
        else:
            raise OptionError(
                f"the rules '{text}' contain the unknown word '{word}'",
                fix=near_matches(word, [*_WORDS, "asymmetric:<type>", "lo..hi"]),
            )
    try:
        return QSpec(tuple(types.split("/")), **fields)
    except OptionError as error:
        raise OptionError(
            f"the rules '{text}' contradict themselves: {error.what}", fix=error.fix
        ) from error
