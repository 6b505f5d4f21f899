"""ncnn on its own files: each operator in a small graph, all graphs in one process."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxq.graph import Model
from onnxq.ncnn.writer import write
from onnxq.running import sessions
from passes.infer_shapes import InferShapes
from tests.consumers.compare import RUNNERS, version_of
from tests.consumers.lowered import ConsumerFailed, run_lowered
from tests.models.build import apply, parse, quantize
from tests.onnxq.ncnn.cases import CASES, graph, int8, several_scales, values


def several_ends() -> Model:
    """An output that another layer reads, one that is quantized, and inputs of two ranks."""
    text = """g (float[1,5,6] a, float[1,4,5,6] b)
        => (float[1,4,5,6] s, float[1,4,5,6] y, float[1,5,6] r) {
        r = Relu(a)
        s = Add(r, b)
        y = Sigmoid(s)
    }"""
    return quantize(apply(parse(text), InferShapes())[0], "y", lo=-127, scale=0.01)


def orders_of_four_axes() -> Model:
    """Every order, each an output."""
    ends, nodes = [], []
    for i, order in enumerate(itertools.permutations(range(1, 5))):
        shape = ",".join(str((1, 2, 3, 4, 5)[axis]) for axis in (0, *order))
        ends.append(f"float[{shape}] y{i}")
        nodes.append(f"y{i} = Transpose<perm={[0, *order]}>(x)")
    text = f"g (float[1,2,3,4,5] x) => ({', '.join(ends)}) {{ {' '.join(nodes)} }}"
    return apply(parse(text), InferShapes())[0]


GRAPHS: dict[str, Callable[[], Model]] = {
    **{name: (lambda name=name: graph(name)) for name in CASES},
    **{f"{name}, quantized": (lambda name=name: int8(name)) for name in CASES},
    "several scales in a group": several_scales,
    "several inputs and outputs": several_ends,
    "orders of four axes": orders_of_four_axes,
}


def feeds_of(name: str, model: Model) -> dict[str, np.ndarray]:
    plain = name.removesuffix(", quantized")
    if plain in CASES:
        return {"x": values(plain)}
    rng = np.random.default_rng(1)
    return {t.name: rng.normal(size=t.shape).astype(np.float32) for t in model.graph.inputs}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], str]:
    """The file of outputs of each graph, and how the process ended if it did not run to its end."""
    version_of("ncnn", "make test-consumers installs it")
    folder = tmp_path_factory.mktemp("graphs")
    made: dict[str, Path] = {}
    for number, (name, make) in enumerate(GRAPHS.items()):
        inner, model = folder / f"{number:04}", make()
        inner.mkdir()
        files = write(model)
        (inner / "m.param").write_text(str(files["param"]), "utf-8")
        (inner / "m.bin").write_bytes(bytes(files["bin"]))
        np.savez(inner / "inputs.npz", **{f"{k}/0": v for k, v in feeds_of(name, model).items()})
        made[name] = inner / "outputs.npz"
    try:
        run_lowered([sys.executable, str(RUNNERS / "run_ncnn.py"), str(folder)])
    except ConsumerFailed as failed:
        return made, str(failed)
    return made, ""


@pytest.mark.parametrize("name", GRAPHS)
def test_operator(name: str, results: tuple[dict[str, Path], str]) -> None:
    files, ended = results
    assert files[name].is_file(), ended
    model = GRAPHS[name]()
    wanted = sessions.reference(model).run(feeds_of(name, model))
    with np.load(files[name]) as found:
        assert set(found.files) == {f"{output}/0" for output in wanted}
        for output, want in wanted.items():
            got = found[f"{output}/0"]
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
