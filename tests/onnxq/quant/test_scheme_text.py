"""Rules of a target as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnxq.backend import Backend, backends
from onnxq.errors import OptionError
from onnxq.quant.scheme import QSpec
from onnxq.quant.scheme_text import parse_rules, rules_text

BACKENDS = {k: b for k, b in backends().items() if isinstance(b, Backend)}


def accepted(spec: QSpec) -> QSpec:
    """The spec without what is for training only."""
    plain = QSpec(spec.types)
    return replace(
        spec,
        lo=spec.range[0],
        hi=spec.range[1],
        algorithm=plain.algorithm,
        observer=plain.observer,
        train_symmetric=None,
        algorithm_is_grid=False,
    )


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_the_rules_of_every_backend_survive(name: str) -> None:
    for spec in (BACKENDS[name].scheme.weight, BACKENDS[name].scheme.activation):
        assert accepted(parse_rules(rules_text(spec))) == accepted(spec)


def test_all_words() -> None:
    text = (
        "int8/int4 symmetric per-channel blocks full-range power-of-two asymmetric:uint8/int8 "
        "-127..127"
    )
    spec = parse_rules(text)
    assert spec == QSpec(
        *(("int8", "int4"), True, True, True),
        full_range=True,
        lo=-127,
        hi=127,
        power_of_two=True,
        asymmetric=("uint8", "int8"),
    )
    assert rules_text(spec) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "do not begin with types"),
        ("int9", "'int9' is not a type"),
        ("int8 symetric", "'symetric'"),
        ("int8 -300..127", "contradict themselves"),
        ("int8 asymmetric:uint9", "'uint9' is not a type"),
    ],
)
def test_bad_rules_name_the_word(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_rules(text)
