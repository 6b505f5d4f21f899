"""Layers whose sums can leave 32 bits."""

from tests.models.lint_cases import conv_net, found


def test_a_huge_bias_is_found() -> None:
    (finding,) = found(conv_net(bias=2e6), "accumulator")
    assert finding.severity == "warning"
    assert "(Conv)" in finding.where
    assert "which exceeds 32 bits" in finding.message


def test_sums_that_fit_are_not_mentioned() -> None:
    assert found(conv_net(bias=2.0), "accumulator") == []
