"""`onnxq.quantize`: float networks to proven files of every backend, and what users get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.backend import Backend, backends
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.wanted import wanted
from onnxq.errors import LoadError, OnnxqError, OptionError, UnsupportedModelError
from onnxq.graph import Model, from_proto
from onnxq.observing.observe import observe
from onnxq.workflows import demo
from onnxq.workflows.calibrate import calibrate
from onnxq.workflows.explain import explain
from onnxq.workflows.quantize import quantize
from onnxq.workflows.quantizing.choices import CLEARLY
from tests.models.networks import NETWORKS, samples

WRITERS = sorted(
    name for name, each in backends().items() if isinstance(each, Backend) and each.writes
)
ONLY_LINEAR = ("academic-nlp", "tensorrt-nlp")
"""Backends that quantize matrix products only."""
LEAST = {"academic": 20.0, "academic-nlp": 12.0}
"""dB that 4-bit schemes keep; others have 8 bits and more."""


def network(name: str) -> Model:
    return from_proto(NETWORKS[name]())


@pytest.mark.parametrize("backend", WRITERS)
@pytest.mark.parametrize("name", ["resnet", "transformer"])
def test_every_backend(backend: str, name: str) -> None:
    done = quantize(network(name), backend, samples(name, 12), method="min-max")
    assert done.proven
    assert done.noise is not None
    assert done.noise.sqnr > LEAST.get(backend, 28.0)
    assert done.samples == 12
    assert done.range_sources


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_best_method_is_hardly_worse_than_the_extremes(name: str) -> None:
    data = samples(name, 16)
    best = quantize(network(name), "onnxruntime", data)
    plain = quantize(network(name), "onnxruntime", data, method="min-max")
    assert best.noise is not None
    assert plain.noise is not None
    assert best.noise.share <= plain.noise.share / CLEARLY


def test_nothing_is_measured_that_was_not_asked_for() -> None:
    """Without a proof and without a choice to make, the samples run once."""
    plain = quantize(
        network("resnet"), "onnxruntime", samples("resnet"), method="mse", verify=False
    )
    assert plain.noise is None
    assert not any("not measured" in note for note in plain.notes)


def test_a_backend_without_anything_to_do_says_so() -> None:
    for backend in ONLY_LINEAR:
        with pytest.raises(LoadError, match="nothing in the model can be quantized"):
            quantize(network("unet"), backend, samples("unet"))


# -- recipes -----------------------------------------------------------------------------------


def saved(done: Any, folder: Path) -> dict[str, bytes]:
    done.stem = "net"
    return {path.name: path.read_bytes() for path in done.save(folder)}


@pytest.mark.parametrize("name", ["resnet", "transformer"])
def test_a_recipe_replays_byte_for_byte(name: str, tmp_path: Path) -> None:
    data = samples(name, 12)
    first = saved(quantize(network(name), "onnxruntime", data, keep_float=2), tmp_path / "a")
    recipe = tmp_path / "a" / "net_recipe.json"
    again = saved(quantize(network(name), data=data, recipe=recipe), tmp_path / "b")
    assert again == first
    assert b'"float"' in first["net_recipe.json"]


def test_statistics_replace_the_data(tmp_path: Path) -> None:
    data = samples("resnet", 12)
    model, _ = float_form(network("resnet"), single=True)
    backend = onnxq.backend.chosen_backend("onnxruntime", None)
    found = observe(model, wanted(Placing(model, backend)), data)
    found.save(tmp_path / "all.stats")
    # Which layers are small is not in the statistics: a rule about all layers decides.
    options = {"method": "mse", "rounding": "nearest", "settings": [["*", {"bits": 8}]]}
    whole = quantize(network("resnet"), "onnxruntime", data, **options)
    parts = quantize(network("resnet"), "onnxruntime", statistics=tmp_path / "all.stats", **options)
    assert saved(parts, tmp_path / "parts") == saved(whole, tmp_path / "whole")
    assert parts.noise is None
    assert any("cost is not measured" in note for note in parts.notes)


def test_statistics_of_another_model_are_refused(tmp_path: Path) -> None:
    model, _ = float_form(network("conv1d"))
    backend = onnxq.backend.chosen_backend("onnxruntime", None)
    observe(model, wanted(Placing(model, backend)), samples("conv1d")).save(tmp_path / "a.stats")
    with pytest.raises(LoadError, match="of another model"):
        quantize(network("resnet"), "onnxruntime", statistics=tmp_path / "a.stats")


def test_choices_beside_a_recipe_are_refused(tmp_path: Path) -> None:
    done = quantize(network("conv1d"), "onnxruntime", samples("conv1d"), method="mse")
    for more in (
        {"method": "mse"},
        {"backend": "tensorrt"},
        {"keep_float": 1},
        {"rounding": "nearest"},
        {"smooth": False},
        {"bias_correction": False},
    ):
        with pytest.raises(OptionError, match="holds all choices"):
            quantize(network("conv1d"), data=samples("conv1d"), recipe=done.recipe, **more)


# -- goals -------------------------------------------------------------------------------------


def test_float_layers_never_cost_quality() -> None:
    data = samples("mobilenet", 12)
    plain = quantize(network("mobilenet"), "onnxruntime", data, method="mse")
    assert plain.noise is not None
    kept = quantize(network("mobilenet"), "onnxruntime", data, method="mse", keep_float=3)
    assert kept.noise is not None
    assert kept.proven
    assert kept.noise.sqnr >= plain.noise.sqnr
    rules = kept.recipe.settings.to_json()
    assert len(rules) <= 3 + len(plain.recipe.settings.rules)  # small layers are float anyway
    assert all(change == "float" for _, change in rules)


def test_a_target_in_decibels_is_reached_with_few_layers() -> None:
    data = samples("resnet", 12)
    plain = quantize(network("resnet"), "onnxruntime", data, method="mse")
    assert plain.noise is not None
    goal = plain.noise.sqnr + 2.0
    done = quantize(network("resnet"), "onnxruntime", data, method="mse", target_sqnr=goal)
    assert done.noise is not None
    assert done.noise.sqnr >= goal
    chosen = len(done.recipe.settings.rules) - len(plain.recipe.settings.rules)
    fewer = [t for t in done.trade_off if len(t.layers) < chosen]
    assert fewer
    assert not any(t.reached for t in fewer)
    assert done.proven


def test_a_reached_target_keeps_nothing_else_float() -> None:
    data = samples("conv1d", 8)
    plain = quantize(network("conv1d"), "onnxruntime", data, verify=False)
    done = quantize(network("conv1d"), "onnxruntime", data, target_sqnr=10.0, verify=False)
    assert done.recipe.settings == plain.recipe.settings
    assert [t.reached for t in done.trade_off] == [True]


def test_a_metric_of_the_user_decides() -> None:
    data = samples("resnet", 12)
    model = network("resnet")
    wanted_outputs = [onnxq.running.sessions.reference(model).run(f)["y"] for f in data]

    def closeness(predict: Any) -> float:
        made = [predict(feed)["y"] for feed in data]
        return -float(
            np.mean([np.abs(a - b).max() for a, b in zip(made, wanted_outputs, strict=False)])
        )

    plain = quantize(model, "onnxruntime", data, method="mse")
    drop = -closeness(onnxq.running.sessions.reference(plain.model).run) / 2
    done = quantize(
        network("resnet"), "onnxruntime", data, method="mse", metric=closeness, max_drop=drop
    )
    assert closeness(onnxq.running.sessions.reference(done.model).run) >= -drop
    assert done.recipe.settings.rules
    assert all(t.metric is not None for t in done.trade_off)


def test_a_goal_beyond_float_is_refused() -> None:
    calls = iter(range(10**6))
    with pytest.raises(OptionError, match="cannot be reached"):
        quantize(
            network("conv1d"),
            "onnxruntime",
            samples("conv1d", 4),
            method="mse",
            metric=lambda predict: -float(next(calls)),
            max_drop=0.0,
        )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"keep_float": -1}, "negative"),
        ({"max_drop": 0.1}, "belong together"),
        ({"keep_float": 1, "target_sqnr": 20.0}, "different goals"),
        ({"method": "msee"}, "no calibration method"),
        ({"settings": [["nothing", "float"]]}, "no layer matches 'nothing'"),
        ({"settings": [["*", {"bit": 4}]]}, "no setting 'bit'"),
    ],
)
def test_choices_that_make_no_sense(more: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        quantize(network("conv1d"), "onnxruntime", samples("conv1d"), **more)


# -- data and models ---------------------------------------------------------------------------


def test_no_data_is_an_error_never_random_ranges() -> None:
    with pytest.raises(LoadError, match="need data") as caught:
        quantize(network("resnet"), "onnxruntime")
    assert "--data" in caught.value.fix


def test_a_bad_sample_is_named() -> None:
    data = samples("resnet", 40)
    data[36]["x"][0, 0, 0, 0] = np.nan
    with pytest.raises(LoadError, match=r"sample 37 .*input 'x'"):
        quantize(network("resnet"), "onnxruntime", data)


def test_data_may_come_once() -> None:
    def stream() -> Iterator[dict[str, np.ndarray]]:
        yield from samples("resnet", 12)

    listed = quantize(network("resnet"), "onnxruntime", samples("resnet", 12), method="mse")
    streamed = quantize(network("resnet"), "onnxruntime", stream(), method="mse")
    assert streamed.proven
    assert streamed.noise is not None
    assert listed.noise is not None
    assert streamed.noise.sqnr == listed.noise.sqnr
    few = quantize(network("resnet"), "onnxruntime", stream(), method="mse", samples=5)
    assert few.samples == 5


def test_a_quantized_model_is_refused_with_the_other_way() -> None:
    done = quantize(network("conv1d"), "onnxruntime", samples("conv1d"), method="mse")
    with pytest.raises(UnsupportedModelError, match="quantized already") as caught:
        quantize(done.model, "tensorrt", samples("conv1d"))
    assert "convert" in caught.value.fix


def test_rules_change_single_layers() -> None:
    model = network("conv1d")
    first, second, *_ = (n for n in float_form(model)[0].nodes("Conv"))
    done = quantize(
        network("conv1d"),
        "onnxruntime",
        samples("conv1d", 8),
        method="mse",
        settings=[[first.name, "float"], ["Conv", {"weight_bits": 4}]],
    )
    rows = {row.tensor: row for row in done.table}
    assert first.inputs[1].name not in rows
    row = rows[second.inputs[1].name]
    assert row.hi - row.lo < 16
    assert done.proven


def test_what_a_softmax_ignores_does_not_widen_its_range() -> None:
    """An additive mask of -1e4, quantized by a target that rounds what a Softmax reads."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"], "project"),
        helper.make_node("Transpose", ["x"], ["k"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["scores"], "compare"),
        helper.make_node("Add", ["scores", "mask"], ["masked"], "hide"),
        helper.make_node("Softmax", ["masked"], ["share"], "share", axis=-1),
        helper.make_node("MatMul", ["share", "x"], ["y"], "mix"),
    ]
    spec = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "attention",
        [spec("x", TensorProto.FLOAT, [1, 6, 8]), spec("mask", TensorProto.FLOAT, [1, 6, 6])],
        [spec("y", TensorProto.FLOAT, [1, 6, 8])],
        [weight],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mask = np.where(np.tri(6, dtype=bool), 0.0, -1e4).astype(np.float32)[None]
    data = [{"x": rng.normal(size=(1, 6, 8)).astype(np.float32), "mask": mask} for _ in range(16)]
    done = quantize(from_proto(proto), "qnn", data, method="min-max")
    row = next(row for row in done.table if row.tensor == "masked")
    assert float(row.range[0].min()) > -100
    assert "Softmax ignores" in done.range_sources["masked"]
    assert done.noise is not None
    assert done.noise.sqnr > 25


def test_bodies_are_quantized_and_unseen_branches_named() -> None:
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.normal(size=shape) * 0.3).astype(np.float32), name)

    spec = helper.make_tensor_value_info
    then = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["u"], "c1", pads=[1] * 4),
            helper.make_node("Relu", ["u"], ["r"]),
            helper.make_node("Conv", ["r", "w2"], ["a"], "c2", pads=[1] * 4),
        ],
        "then",
        [],
        [spec("a", TensorProto.FLOAT, [1, 4, 8, 8])],
        [weight("w2", 4, 4, 3, 3)],
    )
    other = helper.make_graph(
        [
            helper.make_node("Constant", [], ["v"], value=weight("v", 4, 3, 1, 1)),
            helper.make_node("Conv", ["x", "v"], ["b"], "c3"),
        ],
        "other",
        [],
        [spec("b", TensorProto.FLOAT, [1, 4, 8, 8])],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        "g",
        [spec("x", TensorProto.FLOAT, [1, 3, 8, 8]), spec("c", TensorProto.BOOL, [1])],
        [spec("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        [weight("w", 4, 3, 3, 3)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def data(both: bool) -> list[dict[str, np.ndarray]]:
        xs = rng.normal(size=(12, 1, 3, 8, 8)).astype(np.float32)
        return [{"x": x, "c": np.array([not both or i % 2 == 0])} for i, x in enumerate(xs)]

    done = quantize(from_proto(proto), "onnxruntime", data(True), method="mse")
    assert done.proven
    assert {"x", "r", "a", "b", "w", "w2", "v"} <= set(done.range_sources)
    half = quantize(from_proto(proto), "onnxruntime", data(False), method="mse")
    assert half.proven
    assert "b" not in half.range_sources
    assert any(note.startswith("'b' stays float") for note in half.notes)


def half_network() -> Model:
    """conv1d with all weights, inputs and outputs in float16."""
    proto = NETWORKS["conv1d"]()
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            half = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return from_proto(proto)


def half_samples() -> list[dict[str, Any]]:
    return [{"x": feed["x"].astype(np.float16)} for feed in samples("conv1d", 8)]


@pytest.mark.parametrize("backend", ["onnxruntime", "qonnx"])
def test_float16_runs_in_float32_where_kernels_or_files_lack_it(backend: str) -> None:
    done = quantize(half_network(), backend, half_samples())
    assert done.proven
    assert any("computed in float32" in note for note in done.notes)
    assert done.model.graph.inputs[0].dtype == np.float16
    assert done.noise is not None
    assert done.noise.sqnr > 30


@pytest.mark.parametrize("backend", ["onnxruntime", "qonnx", "tensorrt"])
def test_statistics_of_a_float16_network_fit_it(backend: str, tmp_path: Path) -> None:
    path, data = tmp_path / "half.onnx", half_samples()
    onnxq.save(half_network(), path)
    found = calibrate(path, data, backend=backend)
    with ThreadPoolExecutor(2) as executor:
        parts = calibrate(path, data, backend=backend, executor=executor)
    assert parts.dumps() == found.dumps()
    again = quantize(path, backend, data, statistics=found)
    assert again.recipe.dumps() == quantize(path, backend, data).recipe.dumps()


def test_fields_of_rules_for_training_are_named() -> None:
    rules = [["Conv", {"algorithm": "lsq"}]]
    done = quantize(network("conv1d"), "tensorrt", samples("conv1d"), settings=rules)
    assert "'algorithm' of the rules had no effect: for training alone" in done.notes


def test_explain_shows_where_a_range_comes_from() -> None:
    done = quantize(network("conv1d"), "onnxruntime", samples("conv1d", 6), method="mse")
    found = explain(from_proto(done.model.to_proto()), "x", "onnxruntime")
    assert "mse over 6 samples" in str(found.to_json())


def test_the_latency_is_measured_if_asked_for() -> None:
    done = quantize(
        network("conv1d"), "onnxruntime", samples("conv1d", 4), method="mse", measure_latency=True
    )
    assert done.latency is not None
    assert (done.latency > 1) == any("x the time of the float" in note for note in done.notes)


def test_json_is_plain() -> None:
    import json

    done = quantize(network("conv1d"), "onnxruntime", samples("conv1d", 4), keep_float=1)
    document = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert document["recipe"]["backend"] == "onnxruntime"
    assert document["noise"]["sqnr"] > 0
    assert document["trade_off"][0]["float_layers"] == []
    assert document["range_sources"]


def test_nothing_is_written_by_a_failure(tmp_path: Path) -> None:
    with pytest.raises(OnnxqError):
        quantize(network("conv1d"), "onnxruntime", samples("resnet")).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_layer_that_stays_float_is_told() -> None:
    """Of the demo: a small last layer, and a first one that makes much of the noise."""
    model, rng = demo.build(width=64), np.random.default_rng(0)
    feeds = [{"image": rng.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(8)]
    done = quantize(model, "onnxruntime", feeds, verify=False)
    chosen = [rule.selector for rule in done.recipe.settings.rules if rule.change.float]
    assert chosen
    for name in chosen:
        assert any(note.startswith(f"'{name}' in float") for note in done.notes), done.notes
