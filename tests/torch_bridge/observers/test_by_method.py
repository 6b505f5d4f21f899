"""Observers that choose ranges as `onnxq quantize` does."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from onnxq.calibration.weight_ranges import weight_range  # noqa: E402
from onnxq.errors import OptionError, QParamsError  # noqa: E402
from onnxq.observing.range_methods import METHODS, Method  # noqa: E402
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted  # noqa: E402
from onnxq.quant.grid_of_range import grid_numbers  # noqa: E402
from onnxq.quant.scheme import QSpec  # noqa: E402
from tests.torch_bridge.observers.oracle import SPECS, batches, make_spec  # noqa: E402
from tests.torch_bridge.two_processes import in_two_processes  # noqa: E402
from torch_bridge.observers.by_method import ByMethod, WeightByMethod  # noqa: E402

PER_TENSOR = ("int8", "narrow", "uint8", "uint8-zero", "uint16", "pot")


def rules(spec: Any) -> QSpec:
    return QSpec(
        (spec.qtype.name,),
        symmetric=spec.symmetric,
        lo=spec.lo,
        hi=spec.hi,
        power_of_two=spec.power_of_two,
    )


@pytest.mark.parametrize("name", PER_TENSOR)
@pytest.mark.parametrize("method", [*METHODS, "percentile:95"])
def test_the_numbers_are_those_of_the_onnx_side(method: str, name: str) -> None:
    spec = SPECS[name]
    watch, stats = ByMethod(spec, method=method), TensorStatistics(Wanted())
    for batch in batches(5):
        watch(batch)
        stats.add(batch.numpy())
    low, high = Method.parse(method).range(stats.seen, rules(spec))
    want_scale, want_zero = grid_numbers(np.array(low), np.array(high), rules(spec))
    scale, zero_point = watch.calculate()
    assert scale.dtype == torch.float32
    assert zero_point.dtype == torch.int32
    assert scale.item() == want_scale
    assert zero_point.item() == want_zero


def test_a_mask_before_a_softmax_is_left_out() -> None:
    x = torch.tensor([[3.0, 1.0, -1e4], [2.0, 0.0, -1e4]])
    watch = ByMethod(SPECS["uint8"], method="min-max", rows=-1)
    watch(x)
    assert [end.item() for end in watch.range()] == [-18.0, 3.0]


@pytest.mark.parametrize("name", ["int8", "narrow", "int8-channel", "int4-channel"])
@pytest.mark.parametrize("method", [None, "min-max", "mse"])
def test_weights(method: str | None, name: str) -> None:
    spec = SPECS[name]
    first, last = batches(2)
    watch = WeightByMethod(spec, method=method)
    watch(first)
    watch(last)
    low, high, _ = weight_range(last.numpy(), spec.axis, rules(spec), method)
    want, _ = grid_numbers(low, high, rules(spec))
    scale, zero_point = watch.calculate()
    assert np.array_equal(scale.numpy(), want)
    assert not zero_point.any()


@pytest.mark.parametrize("kind", [ByMethod, WeightByMethod])
def test_state_is_saved_loaded_and_forgotten(kind: Any) -> None:
    first, second = batches(2)
    watch = kind(SPECS["uint8"], method="mse")
    watch(first)
    saved = watch.state_dict()
    before = {name: value.clone() for name, value in saved.items()}
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    loaded = kind(SPECS["uint8"], method="mse")
    loaded.load_state_dict(torch.load(file, weights_only=True), strict=True)
    watch(second)
    loaded(second)
    assert loaded.calculate() == watch.calculate()
    assert all(torch.equal(saved[name], before[name]) for name in before)
    watch.reset()
    assert not watch.ready
    watch(first)
    fresh = kind(SPECS["uint8"], method="mse")
    fresh(first)
    assert watch.calculate() == fresh.calculate()


def test_odd_input() -> None:
    watch = ByMethod(SPECS["uint8"], method="mse")
    watch(torch.empty(0, 3))
    assert not watch.ready
    watch(torch.zeros(3))
    assert watch.calculate()[0] == 1.0
    with pytest.raises(QParamsError, match="1 NaN"):
        watch(torch.tensor([1.0, float("nan")]))
    assert watch.calculate()[0] == 1.0
    x = torch.tensor([1.0, -2.0], dtype=torch.bfloat16, requires_grad=True)
    watch(x)
    assert not watch.calculate()[0].requires_grad


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_the_layout_in_memory_does_not_matter(order: Any) -> None:
    """Of large tensors every n-th value is counted, in the order of their axes."""
    x = torch.randn(2, 8, 80, 80, generator=torch.Generator().manual_seed(0))
    watch = ByMethod(SPECS["uint8"], method="percentile:99")
    watch(x.contiguous(memory_format=order))
    plain = ByMethod(SPECS["uint8"], method="percentile:99")
    plain(x)
    assert watch.calculate() == plain.calculate()


def test_options_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match="no calibration method 'mes'") as caught:
        ByMethod(SPECS["int8"], method="mes")
    assert "mse" in caught.value.fix
    with pytest.raises(OptionError, match="one range per tensor"):
        ByMethod(SPECS["int8-channel"], method="mse")
    with pytest.raises(OptionError, match="no method 'entropy' for weights"):
        WeightByMethod(SPECS["int8"], method="entropy")
    with pytest.raises(OptionError, match="per tensor or channel"):
        WeightByMethod(SPECS["block"])


def test_a_logarithmic_grid_takes_the_largest_magnitude() -> None:
    spec = make_spec("int8")
    for kind in (ByMethod, WeightByMethod):
        watch = kind(spec, method="min-max", logarithmic=True)
        watch(torch.tensor([-3.0, 2.0]))
        assert watch.calculate()[0].item() == np.float32(3 / 127.5)


def work(rank: int) -> Any:
    watch = ByMethod(SPECS["uint8"], method="moving-average")
    wide = ByMethod(SPECS["uint8"], method="mse")
    for index, batch in enumerate(batches(4)):
        mine = batch if index % 2 == rank else batch[:0]
        watch(mine)
        wide(mine)
    return [*watch.calculate(), *wide.calculate()]


def test_two_processes_equal_one(tmp_path: Any) -> None:
    first, second = in_two_processes(work, tmp_path)
    assert first == second
    alone = []
    for method in ("moving-average", "mse"):
        watch = ByMethod(SPECS["uint8"], method=method)
        for batch in batches(4):
            watch(batch)
        alone += watch.calculate()
    assert first == alone
