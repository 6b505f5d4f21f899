"""Tensors that a target quantizes and that have no range."""

from tests.lint_cases import conv_net, found, where


def test_a_result_without_a_range_is_named() -> None:
    missing = found(conv_net(out=False), "missing-range")
    assert where(missing) == ["active"]
    assert missing[0].severity == "warning"
    assert "writes codes" in missing[0].message


def test_a_target_that_does_not_ask_is_content() -> None:
    assert found(conv_net(out=False), "missing-range", "tensorrt") == []


def test_complete_models_miss_nothing() -> None:
    assert found(conv_net(), "missing-range") == []
