"""Kernels of real sessions: counted as in onnxruntime's own graph."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnxq.graph import from_proto, save
from onnxq.running.samples import random_feed
from onnxq.timing.survey import Survey, rename_nodes
from onnxq.timing.worker import Worker
from onnxq.workflows import demo
from onnxq.workflows.convert import convert
from tests.checks.optimized import optimized
from tests.models.build import parse
from tests.models.foreign_files import FOLDER
from tests.models.lint_cases import conv_net, gemm_net


def surveyed(path: Path, folder: Path) -> Survey:
    worker = Worker()
    inputs = worker.open(str(path), 1)
    worker.take([random_feed(worker.fill(inputs, 0))])
    return worker.survey(str(folder))


def written(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("proto", [conv_net(), gemm_net(1.0)], ids=["conv", "gemm"])
def test_integer_operators_are_those_of_the_optimised_graph(
    proto: onnx.ModelProto, tmp_path: Path
) -> None:
    found = surveyed(written(proto, tmp_path), tmp_path)
    assert found.integer_operators == optimized(proto, "shipped").kernels
    assert found.counts["integer"] == sum(found.integer_operators.values()) > 0
    assert found.float_nodes == ()
    assert sum(found.shares.values()) == pytest.approx(1)


def test_a_converted_network(tmp_path: Path) -> None:
    done = convert(demo.quantize(demo.build()), "onnxruntime")
    (path,) = done.save(tmp_path / "out")
    found = surveyed(path, tmp_path)
    assert found.integer_operators == optimized(onnx.load(path), "shipped").kernels
    assert (found.on_codes, found.compared, found.islands) == (20, 20, 0)


@pytest.mark.parametrize("variant", ["ort-qdq-u8s8", "ort-qop-u8s8", "ort-dynamic-u8"])
def test_files_of_another_tool(variant: str, tmp_path: Path) -> None:
    path = FOLDER / "A2" / variant / "model.onnx"
    if not path.exists():
        pytest.skip("no ../shared/fixtures beside the repository")
    found = surveyed(path, tmp_path)
    kernels = optimized(onnx.load(path), "shipped").kernels
    assert {op: found.integer_operators.get(op, 0) for op in kernels} == kernels
    assert found.islands > 0
    assert 0 < sum(n.share + n.conversions for n in found.float_nodes) < 1


def test_a_float_network_has_no_islands(tmp_path: Path) -> None:
    path = tmp_path / "f.onnx"
    save(demo.build(), path)
    found = surveyed(path, tmp_path)
    assert found.on_codes == 0
    assert (found.islands, found.float_nodes, found.float_nodes_in_all) == (0, (), 0)
    assert found.shares["float"] > 0.9


def test_a_node_kept_in_float_is_named_with_the_reason(tmp_path: Path) -> None:
    model = from_proto(conv_net(out=False))
    path = tmp_path / "m.onnx"
    save(model, path)
    found = surveyed(path, tmp_path)
    conv = next(n for n in found.float_nodes if "Conv" in n.op)
    assert "not quantized" in conv.reason
    assert conv.before == ("the input",)
    assert conv.share > 0
    assert conv.to_json()["before"] == ["the input"]


def test_functions_and_odd_names_do_not_confuse(tmp_path: Path) -> None:
    model = demo.quantize(demo.build())  # its quantizers are functions
    for number, node in enumerate(model.nodes("Conv")):
        node.name = f'a "quoted"\\name {number}'
    path = tmp_path / "m.onnx"
    save(model, path)
    found = surveyed(path, tmp_path)
    assert found.float_nodes[0].node.startswith('a "quoted"\\name')
    assert found.float_nodes[0].share > 0
    # Only what onnxruntime adds without a name is left without a kernel.
    assert found.counts["conversion"] == 22


def test_every_node_gets_a_name_and_the_old_ones_are_returned() -> None:
    proto = parse(
        """g (float[3] x, bool c) => (float[3] z) {
            y = Exp(x)
            z = If (c) <then_branch = g1 () => (float[3] a) { a = Erf(y) },
                        else_branch = g2 () => (float[3] b) { b = Neg(y) }>
        }"""
    ).to_proto()
    names = rename_nodes(proto)
    assert sorted(key for _, key in names) == ["a", "b", "y", "z"]
    assert len({node.name for node in proto.graph.node}) == 2
