"""Models measured side by side. Nothing here depends on how long anything takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.errors import LoadError, OptionError, UnsupportedModelError
from onnxq.graph import save
from onnxq.timing import child
from onnxq.timing.rounds import Spread
from onnxq.workflows import demo
from onnxq.workflows.bench import Bench, _doubts, bench
from tests.models.build import parse
from tests.models.lint_cases import conv_net

SHORT = 0.02


def text(shape: str, name: str = "x") -> str:
    return f"g (float[{shape}] {name}) => (float[{shape}] y) {{ y = Relu({name}) }}"


def written(path: Path, body: str) -> Path:
    save(parse(body), path)
    return path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """`bench` in a moment, with the worker that dies on request."""
    monkeypatch.setattr(child, "WORKER", "tests.models.dying_worker")

    def run(*models: object, **options: object) -> Bench:
        return bench(models, **{"seconds": SHORT, "profile": False} | options)

    return run


def test_a_model_beside_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", text("N, 3"))
    found = onnxq.bench([path, path], seconds=SHORT)
    first, second = found.models
    assert first.ratio.median == first.ratio.low == 1
    assert second.ratio.low <= second.ratio.median <= second.ratio.high
    assert first.milliseconds.median > 0
    assert first.inputs == second.inputs == ("x float32[1, 3]",)
    assert found.rounds >= 5
    assert found.passed
    assert first.survey.counts == {"float": 1}
    document = found.to_json()
    assert document["models"][1]["model"] == str(path)
    assert document["models"][1]["profile"]["time"] == {"float": pytest.approx(1)}


def test_the_number_of_rounds_follows_the_clock(measured: Callable[..., Bench]) -> None:
    model = parse(text("1, 3"))
    ticks = (number / 64 for number in itertools.count())
    found = measured(model, model, seconds=12 / 64, clock=lambda: next(ticks))
    # One look at the start, none in the first five rounds, then one after each.
    assert found.rounds == 5 + 11


def test_names_and_models_in_memory() -> None:
    network = demo.build()
    found = bench({"float": network, "quantized": demo.quantize(network)}, seconds=SHORT)
    assert [row.model for row in found.models] == ["float", "quantized"]
    assert found.models[0].file_bytes > 1000
    assert found.models[1].survey.counts["conversion"] > 0


def test_the_size_includes_data_files(tmp_path: Path, measured: Callable[..., Bench]) -> None:
    network = demo.build()
    save(network, tmp_path / "one.onnx")
    save(network, tmp_path / "two.onnx", external_data=True)
    data = (tmp_path / "two.onnx.data").stat().st_size
    one, two = measured(tmp_path / "one.onnx", tmp_path / "two.onnx").models
    assert one.file_bytes == (tmp_path / "one.onnx").stat().st_size
    assert two.file_bytes == (tmp_path / "two.onnx").stat().st_size + data
    assert data > 1000


def test_open_sizes_follow_the_model_that_fixes_them(measured: Callable[..., Bench]) -> None:
    found = measured(parse(text("N, 3")), parse(text("7, 3")))
    assert {row.inputs for row in found.models} == {("x float32[7, 3]",)}
    assert all(row.clean_rounds <= found.rounds for row in found.models)
    assert not any(row.own_inputs for row in found.models)
    assert not [note for note in found.notes if "inputs" in note]


def test_other_inputs_are_told(measured: Callable[..., Bench]) -> None:
    found = measured(parse(text("1, 3")), parse(text("1, 4")), parse(text("1, 3")))
    assert [row.own_inputs for row in found.models] == [False, True, False]
    assert "model 2 has inputs of its own: they differ from those of model 1" in found.notes
    assert found.models[1].ratio is not None


def test_data(tmp_path: Path, measured: Callable[..., Bench]) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((40, 3), np.float32))
    with pytest.raises(LoadError, match="but the input is") as error:
        measured(parse(text("N, 3")), parse(text("N, 4")), data=tmp_path / "d.npz")
    assert error.value.__notes__ == ["for model 2"]


def test_data_that_can_be_read_once_serves_all_models(measured: Callable[..., Bench]) -> None:
    both = {"x": np.ones((1, 3), np.float32), "z": np.ones((1, 4), np.float32)}
    found = measured(parse(text("1, 3")), parse(text("1, 4", "z")), data=iter([both]))
    assert [row.inputs[0] for row in found.models] == ["x float32[1, 3]", "z float32[1, 4]"]


def test_a_model_with_a_data_file_stays_as_it_is(
    tmp_path: Path, measured: Callable[..., Bench]
) -> None:
    save(demo.build(), tmp_path / "m.onnx", external_data=True)
    model = onnxq.load(tmp_path / "m.onnx")
    before = model.to_proto().SerializeToString(deterministic=True)
    assert measured(model).passed
    assert model.to_proto().SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("request_", ["open", "fill", "take", "warm", "turn"])
def test_a_model_that_dies_is_named_and_the_others_are_measured(
    request_: str, tmp_path: Path, measured: Callable[..., Bench]
) -> None:
    good = written(tmp_path / "good.onnx", text("1, 3"))
    bad = written(tmp_path / f"aborts-in-{request_}.onnx", text("1, 3"))
    if request_ == "fill":
        bad = written(bad, text("N, 4"))
    found = measured(good, bad)
    assert [bool(row.failure) for row in found.models] == [False, True]
    assert "SIGABRT" in found.models[1].failure
    assert found.models[1].model == str(bad)
    assert found.models[1].milliseconds is found.models[1].ratio is None
    assert found.models[0].milliseconds is not None
    assert not found.passed


def test_nothing_is_left(tmp_path: Path, measured: Callable[..., Bench]) -> None:
    bad = written(tmp_path / "aborts-in-open.onnx", text("1, 3"))
    found = measured(bad)
    assert (found.rounds, found.passed) == (0, False)


@pytest.mark.parametrize("request_", ["open", "turn"])
def test_without_the_first_there_are_no_ratios(
    request_: str, tmp_path: Path, measured: Callable[..., Bench]
) -> None:
    good = written(tmp_path / "good.onnx", text("1, 3"))
    bad = written(tmp_path / f"aborts-in-{request_}.onnx", text("1, 3"))
    first, second = measured(bad, good).models
    assert first.failure
    assert second.milliseconds is not None
    assert second.ratio is None
    assert not second.own_inputs


def test_a_death_in_the_profile_costs_only_the_profile(
    tmp_path: Path, measured: Callable[..., Bench]
) -> None:
    path = written(tmp_path / "aborts-in-survey.onnx", text("1, 3"))
    found = measured(path, profile=True)
    assert found.passed
    assert found.models[0].survey is None
    assert any("could not be profiled" in note and "SIGABRT" in note for note in found.notes)


def test_models_without_inputs(measured: Callable[..., Bench]) -> None:
    model = parse("g () => (float[2] y) <float[2] w = {1, 2}> { y = Exp(w) }")
    found = measured(model, model)
    assert found.models[1].inputs == ()
    assert found.models[1].ratio is not None


def test_a_quantized_model_reports_its_integer_operators(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(conv_net().SerializeToString())
    (row,) = bench(path, seconds=SHORT).models
    assert row.survey.integer_operators == {"QLinearConv": 1}


def test_doubts_are_told() -> None:
    steady, wide = Spread(1.0, 1.0, 1.01), Spread(1.0, 0.5, 2.0)
    assert list(_doubts("m", steady, True)) == []
    (varies,) = _doubts("m", wide, True)
    assert "the latency of m varies" in varies
    (busy,) = _doubts("m", steady, False)
    assert "interrupted nearly all runs of m" in busy


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    good = parse(text("1, 3"))
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(LoadError, match=r"none\.onnx"):
        bench([good, tmp_path / "none.onnx"])
    with pytest.raises(LoadError, match=r"text\.onnx"):
        bench([good, tmp_path / "text.onnx"])
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "my" : 1]>'
        "g (float[3] x) => (float[3] y) { y = my.Op(x) }"
    )
    (tmp_path / "my.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(UnsupportedModelError, match=r"my\.onnx"):
        bench([tmp_path / "my.onnx"])
    with pytest.raises(OptionError, match="no models"):
        bench([])
    with pytest.raises(OptionError, match="threads"):
        bench([good], threads=0)
    for seconds in (0.0, float("nan"), float("inf")):
        with pytest.raises(OptionError, match="seconds"):
            bench([good], seconds=seconds)
