"""What settings of a layer change in the rules of a target, and what a target refuses."""

from __future__ import annotations

import pytest

from onnxq.errors import OptionError
from onnxq.quant.layer_spec import activation_spec, weight_spec
from onnxq.quant.scheme import QSpec
from onnxq.quant.settings import LayerSettings

WEIGHT = QSpec(("int8",), symmetric=True, per_channel=True, lo=-127)
ACTIVATION = QSpec(("uint8", "int8"))


def test_nothing_stated_changes_nothing() -> None:
    plain = LayerSettings(method="mse", weight_algorithm="lsq", activation_algorithm="pact")
    assert weight_spec(WEIGHT, plain, "chip") is WEIGHT
    assert activation_spec(ACTIVATION, plain, "chip") is ACTIVATION


def test_each_side_takes_its_own_bits() -> None:
    chosen = LayerSettings(weight_bits=4, activation_bits=6)
    assert weight_spec(WEIGHT, chosen, "chip").range == (-7, 7)
    assert activation_spec(ACTIVATION, chosen, "chip").range == (0, 63)


def test_scales_per_tensor_can_be_asked_for_but_not_per_channel() -> None:
    assert not weight_spec(WEIGHT, LayerSettings(per_channel=False), "chip").per_channel
    with pytest.raises(OptionError, match="chip has one scale per tensor for weights"):
        weight_spec(QSpec(("int8",)), LayerSettings(per_channel=True), "chip")


def test_symmetric_codes_are_signed() -> None:
    made = activation_spec(ACTIVATION, LayerSettings(symmetric=True), "chip")
    assert made.symmetric
    assert made.qtype.name == "int8"
    with pytest.raises(OptionError, match="chip has no signed type for activations"):
        activation_spec(QSpec(("uint8",)), LayerSettings(symmetric=True), "chip")


def test_symmetric_codes_keep_their_bits() -> None:
    spec = QSpec(("uint8", "int8", "uint4", "int4"))
    chosen = LayerSettings(symmetric=True, activation_bits=3)
    made = activation_spec(spec, chosen, "chip")
    assert (made.types[0], made.range, made.bits) == ("int4", (-4, 3), 3)


def test_zero_points_that_the_target_lacks() -> None:
    assert activation_spec(ACTIVATION, LayerSettings(symmetric=False), "chip") is ACTIVATION
    with pytest.raises(OptionError, match="chip has no zero points for activations") as caught:
        activation_spec(QSpec(("int8",), symmetric=True), LayerSettings(symmetric=False), "chip")
    assert "symmetric" in caught.value.fix


def test_bits_that_the_target_lacks() -> None:
    with pytest.raises(OptionError, match=r"chip has no weights of 16 bits \(int8\)"):
        weight_spec(WEIGHT, LayerSettings(weight_bits=16), "chip")
    with pytest.raises(OptionError, match="chip has no activations of 9 bits"):
        activation_spec(ACTIVATION, LayerSettings(activation_bits=9), "chip")


def test_a_logarithmic_grid_has_its_own_bits() -> None:
    grid = QSpec(("int8",), symmetric=True, algorithm="nnie", algorithm_is_grid=True)
    assert weight_spec(grid, LayerSettings(weight_bits=4), "chip") is grid


def test_weights_have_a_symmetry_of_their_own() -> None:
    spec = QSpec(("uint8", "int8"))
    assert weight_spec(spec, LayerSettings(symmetric=True), "chip") is spec
    made = weight_spec(spec, LayerSettings(weight_symmetric=True, weight_bits=4), "chip")
    assert (made.symmetric, made.range) == (True, (-8, 7))
    with pytest.raises(OptionError, match="chip has no zero points for weights") as caught:
        weight_spec(WEIGHT, LayerSettings(weight_symmetric=False), "chip")
    assert "weight_symmetric" in caught.value.fix


def test_powers_of_two() -> None:
    chosen = LayerSettings(pot_scale=True)
    assert weight_spec(WEIGHT, chosen, "chip").power_of_two
    assert activation_spec(ACTIVATION, chosen, "chip").power_of_two
    assert activation_spec(ACTIVATION, LayerSettings(pot_scale=False), "chip") is ACTIVATION
    shifts = QSpec(("int8",), symmetric=True, power_of_two=True)
    assert weight_spec(shifts, chosen, "chip") == shifts
    with pytest.raises(OptionError, match="scales of weights are powers of two"):
        weight_spec(shifts, LayerSettings(pot_scale=False), "chip")
    grid = QSpec(("int8",), symmetric=True, algorithm="nnie", algorithm_is_grid=True)
    with pytest.raises(OptionError, match="chip has a logarithmic grid for activations"):
        activation_spec(grid, chosen, "chip")
