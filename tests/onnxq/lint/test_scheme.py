"""Quantizers that a target does not take."""

import numpy as np

from onnxq.backend import find_backend
from onnxq.workflows.convert import convert
from tests.models.build import parse, quantize, weight
from tests.models.lint_cases import conv_net, found
from tests.models.networks import quantized


def test_every_tensor_is_named_with_the_rule_it_breaks() -> None:
    broken = found(conv_net(), "scheme", "tensorrt")
    assert {f.severity for f in broken} == {"error"}
    texts = [f"{f.where}: {f.message}" for f in broken]
    assert any(t.startswith("x: ") and "zero point 128 (must be 0)" in t for t in texts)
    assert any(
        t.startswith("active: ") and "type uint8 (accepted: int8, float8e4m3fn)" in t for t in texts
    )
    assert all("scheme" in f.fix for f in broken)


def test_what_fits_is_not_mentioned() -> None:
    assert found(conv_net(), "scheme") == []


def test_linear_and_logarithmic_grids() -> None:
    model = quantized("conv1d", find_backend("nnie")).to_proto()
    (x,) = [f for f in found(model, "scheme", "tensorrt") if f.where == "x"]
    assert "a logarithmic grid (must be linear)" in x.message
    assert found(model, "scheme", "nnie") == []
    (x,) = [f for f in found(conv_net(), "scheme", "nnie") if f.where == "x"]
    assert "a linear grid (must be logarithmic)" in x.message


def test_a_factor_may_lie_on_a_grid_of_activations() -> None:
    """What convert accepts, lint does not call an error."""
    model = parse(
        "g (float[1,4] x) => (float[1,4] y) <float[4] k = {1, 2, 3, 4}> { y = Mul(x, k) }"
    )
    for name in ("x", "y"):
        quantize(model, name, qtype="uint16", zero_point=32768, scale=np.float32(1e-3))
    weight(model, "k", qtype="uint16", zero_point=7, scale=np.float32(1e-4))
    done = convert(model, "qnn")
    assert done.proven
    assert done.change is None
    assert not [f for f in done.findings if f.rule == "scheme"]
