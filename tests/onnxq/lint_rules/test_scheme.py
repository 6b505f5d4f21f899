"""Quantizers that a target does not take."""

from tests.lint_cases import conv_net, found


def test_every_tensor_is_named_with_the_rule_it_breaks() -> None:
    broken = found(conv_net(), "scheme", "tensorrt")
    assert {f.severity for f in broken} == {"error"}
    texts = [f"{f.where}: {f.message}" for f in broken]
    assert any(t.startswith("x: ") and "zero point 128 (must be 0)" in t for t in texts)
    assert any(t.startswith("active: ") and "type uint8 (accepted: int8)" in t for t in texts)
    assert all("scheme" in f.fix for f in broken)


def test_what_fits_is_not_mentioned() -> None:
    assert found(conv_net(), "scheme") == []
