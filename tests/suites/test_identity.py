"""Reading a model and writing it back changes nothing, in memory, by way of a copy, or by files.

There are no exceptions: files that break ONNX's rules (unsorted nodes, a domain without opset
import, unknown operators) come back as they went in, but for the order of unsorted nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from onnxq.canonical import fake_quantize
from onnxq.graph import Model, from_proto, load, save
from tests.checks.same_model import assert_same, differences, is_sorted
from tests.models import real_models
from tests.models.foreign_files import FOLDER as FIXTURES
from tests.models.zoo import ZOO

ONNX_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"

NODE_TESTS = 1884
"""How many one-operator models onnx 1.23 has; a change means a new onnx, not a broken test."""


def copy_of(proto: ModelProto) -> ModelProto:
    twin = ModelProto()
    twin.CopyFrom(proto)
    return twin


def bytes_of(proto: ModelProto) -> bytes:
    return proto.SerializeToString(deterministic=True)


def written_back(proto: ModelProto, folder: Path | None = None) -> Iterator[ModelProto]:
    """What becomes of `proto`: directly, from a copy of the model, and once more.

    Where two of them are the same bytes, one is given.
    """
    model = from_proto(proto, folder)
    first = model.to_proto()
    yield first
    for again in (model.clone().to_proto(), model.to_proto()):
        if bytes_of(again) != bytes_of(first):
            yield again


def assert_kept(proto: ModelProto, folder: Path | None = None) -> None:
    before = copy_of(proto)
    unsorted = not is_sorted(before.graph)
    for after in written_back(proto, folder):
        assert_same(before, after, sort_nodes=unsorted)
        assert is_sorted(after.graph)
    assert bytes_of(proto) == bytes_of(before), "the source was changed on the way"


def assert_kept_in_files(path: Path, tmp_path: Path) -> None:
    before = onnx.load(path)
    model: Model = load(path)
    assert save(model, tmp_path / "inline.onnx", external_data=False) == [tmp_path / "inline.onnx"]
    assert_same(before, onnx.load(tmp_path / "inline.onnx"), sort_nodes=not is_sorted(before.graph))


@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str) -> None:
    assert_kept(ZOO[name]())


def test_all_node_tests_of_onnx() -> None:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx computes infinities and NaNs on purpose
        cases = collect_testcases(None)
    assert len(cases) == NODE_TESTS
    changed = {}
    for case in cases:
        before = copy_of(case.model)
        for after in written_back(case.model):
            found = differences(before, after)
            if found:
                changed[case.name] = found
    assert not changed


def onnx_files() -> list[Path]:
    return sorted(p for kind in ONNX_DATA.iterdir() for p in kind.rglob("*.onnx"))


@pytest.mark.parametrize("path", onnx_files(), ids=lambda p: p.parent.name)
def test_test_models_of_onnx(path: Path) -> None:
    assert_kept(onnx.load(path))


def test_light_networks_are_among_the_test_models() -> None:
    assert len([p for p in onnx_files() if p.name.startswith("light_")]) == 9


def fixture_files() -> list[object]:
    found = sorted(FIXTURES.rglob("*.onnx")) if FIXTURES.is_dir() else []
    if found:
        return [pytest.param(p, id=str(p.relative_to(FIXTURES).with_suffix(""))) for p in found]
    absent = pytest.mark.skip(reason=f"{FIXTURES} is not there")
    return [pytest.param(FIXTURES, id="absent", marks=absent)]


@pytest.mark.parametrize("path", fixture_files())
def test_models_of_other_tools(path: Path) -> None:
    assert_kept(onnx.load(path, load_external_data=False), path.parent)


@pytest.mark.network
@pytest.mark.parametrize("name", real_models.NETWORKS)
def test_real_networks(name: str) -> None:
    assert_kept(real_models.load(name))


@pytest.mark.network
@pytest.mark.parametrize("name", ["ocr-cls", "vad", "magika", "aecmos-1", "captcha-dynamic-int8"])
def test_real_networks_through_files(name: str, tmp_path: Path) -> None:
    assert_kept_in_files(real_models.path_of(name), tmp_path)


@pytest.mark.network
@pytest.mark.parametrize("name", ["ocr-rec", "vad", "captcha-det"])
def test_real_networks_through_external_data(name: str, tmp_path: Path) -> None:
    """Initializers and the tensors of Constant nodes, in bodies too, come back from their file."""
    path = real_models.path_of(name)
    model = load(path)
    saved, data = save(model, tmp_path / "m.onnx", external_data=True)
    assert data.stat().st_size > 0.9 * path.stat().st_size > saved.stat().st_size
    before, after = onnx.load(path), onnx.load(saved)
    for proto in (before, after):
        for tensor in onnx.external_data_helper._get_all_tensors(proto):
            if not tensor.HasField("raw_data"):  # external data is always raw
                values = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor))
                tensor.MergeFrom(onnx.TensorProto(raw_data=values.raw_data))
                for field in ("float_data", "int32_data", "int64_data", "double_data"):
                    tensor.ClearField(field)
            tensor.ClearField("external_data")
    assert_same(before, after)


@pytest.mark.parametrize("path", onnx_files()[::20], ids=lambda p: p.parent.name)
def test_test_models_of_onnx_through_files(path: Path, tmp_path: Path) -> None:
    assert_kept_in_files(path, tmp_path)


# -- the comparison itself ----------------------------------------------------------------------


def reordered(proto: ModelProto) -> None:
    tensors = list(proto.graph.initializer)[::-1]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(tensors)


def test_comparison_ignores_order_of_initializers_and_explicit_defaults() -> None:
    before = ZOO["residual"]()
    after = copy_of(before)
    reordered(after)
    after.graph.doc_string = ""
    assert before.SerializeToString() != after.SerializeToString()
    assert differences(before, after) == []


CHANGES = {
    "node order": lambda m: (m.graph.node.extend([m.graph.node[0]]), m.graph.node.pop(0)),
    "one weight bit": lambda m: setattr(
        m.graph.initializer[0], "raw_data", b"\x01" + m.graph.initializer[0].raw_data[1:]
    ),
    "node doc string": lambda m: setattr(m.graph.node[0], "doc_string", "x"),
    "metadata": lambda m: m.metadata_props.add(key="k", value="v"),
    "opset": lambda m: setattr(m.opset_import[0], "version", 12),
    "attribute": lambda m: m.graph.node[0].attribute.add(name="a", type=2, i=0),
    "lost value": lambda m: m.graph.initializer.pop(),
    "dimension": lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 77),
    "producer": lambda m: setattr(m, "producer_version", "9"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_comparison_sees(what: str) -> None:
    before = ZOO["residual"]()
    after = copy_of(before)
    CHANGES[what](after)
    assert differences(before, after)


def test_comparison_takes_nan_for_equal_and_zero_for_signed() -> None:
    nan = onnx.helper.make_node("Constant", [], ["y"], value_float=float("nan"))
    zero = onnx.helper.make_node("Constant", [], ["y"], value_float=0.0)
    minus = onnx.helper.make_node("Constant", [], ["y"], value_float=-0.0)

    def model(node: onnx.NodeProto) -> ModelProto:
        return ModelProto(graph=onnx.GraphProto(node=[node]))

    assert differences(model(nan), model(nan)) == []
    assert differences(model(zero), model(minus))


# -- the project's own function ------------------------------------------------------------------


def canonical(nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> ModelProto:
    helper = onnx.helper
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
        [
            helper.make_tensor("s", onnx.TensorProto.FLOAT, [], [0.5]),
            helper.make_tensor("z", onnx.TensorProto.INT8, [], [0]),
        ],
    )
    imports = [helper.make_opsetid(d, v) for d, v in (("", 17), ("onnxq", 1), ("com.x", 1))]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8)


CALL = onnx.helper.make_node(
    "FakeQuantize", ["x", "s", "z"], ["y"], domain="onnxq", quant_min=-8, quant_max=7
)
CALLER = onnx.helper.make_function(
    "com.x",
    "f",
    ["x", "s", "z"],
    ["y"],
    [CALL],
    [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("onnxq", 1)],
)


@pytest.mark.parametrize("where", ["graph", "function", "both", "nowhere"])
def test_fake_quantize_function_is_kept(where: str) -> None:
    outer = onnx.helper.make_node("f", ["x", "s", "z"], ["y"], domain="com.x")
    inner = onnx.helper.make_node("f", ["x", "s", "z"], ["t"], domain="com.x")
    after = onnx.helper.make_node("Relu", ["x"], ["y"])
    nodes = {"graph": [CALL], "function": [outer], "both": [inner, CALL], "nowhere": [after]}
    functions = [fake_quantize.function(17)]
    if where in ("function", "both"):
        functions.append(CALLER)
    assert_kept(canonical(nodes[where], *functions))
