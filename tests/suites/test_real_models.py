"""Real networks of old opsets compute the same after their opset was raised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from onnxq.errors import UnsupportedModelError
from onnxq.graph import from_proto
from onnxq.running import sessions
from tests.models import real_inputs, real_models

TARGET = 21
RELATIVE = 1e-5
"""Largest difference, as a share of the largest absolute output."""


def raised(proto: ModelProto) -> ModelProto:
    """`proto` at opset 21, which must be reported and stand in the file."""
    old = max(e.version for e in proto.opset_import if e.domain == "")
    model = from_proto(proto)
    model.require_opset(TARGET, "test")
    assert model.upgrades[0] == f"opset {old} -> {TARGET}: test"
    written = model.to_proto()
    assert {e.version for e in written.opset_import if e.domain == ""} == {TARGET}
    return written


def assert_equal(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
    assert list(expected) == list(found)
    for name, a in expected.items():
        b = found[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.isfinite(a).all()
        worst = np.abs(a.astype(np.float64) - b).max(initial=0)
        assert worst <= RELATIVE * max(np.abs(a).max(initial=0), 1e-12), (name, worst)


@pytest.mark.parametrize("path", sorted(real_models.LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_light_networks(path: Path) -> None:
    """Against the outputs that onnx ships, and against the network as it was."""
    shipped = tensor(path.with_name(f"{path.stem}_output_0.pb"))
    proto = onnx.load(path)
    session = sessions.reference(proto)
    (feed,) = session.inputs
    # The input behind the shipped outputs, see generate_dummy_data in onnx.backend.test.runner.
    count = int(np.prod(feed.shape))
    x = (np.arange(count).reshape(feed.shape) / count).astype(np.float32)
    before = session.run({feed.name: x})
    written = raised(proto)
    assert written.ir_version == 10
    assert [i.name for i in written.graph.input] == [feed.name]  # weights are constants now
    after = sessions.reference(written).run({feed.name: x})
    assert_equal(before, after)
    (result,) = after.values()
    np.testing.assert_allclose(result, shipped, rtol=1e-3, atol=1e-5)  # another machine's kernels


REFUSED = {
    **{f"test_PReLU_{n}d_multiparam": "one number per channel" for n in (1, 2, 3)},
    **{
        f"test_operator_add_{kind}broadcast": "broadcasts along an axis"
        for kind in ("", "size1_", "size1_right_", "size1_singleton_")
    },
}
"""Opset 6 spoke of axes where later versions align shapes; onnxruntime begins at opset 7."""


@pytest.mark.parametrize(
    "path",
    sorted(real_models.LIGHT.parent.glob("pytorch-*/*/model.onnx")),
    ids=lambda p: p.parent.name,
)
def test_exported_layers(path: Path) -> None:
    """Layers exported by early PyTorch at opset 6 to 9, against the outputs that onnx ships."""
    folder = path.parent / "test_data_set_0"
    proto = onnx.load(path)
    if path.parent.name in REFUSED:
        with pytest.raises(UnsupportedModelError, match=REFUSED[path.parent.name]):
            raised(proto)
        return
    session = sessions.reference(raised(proto))
    feeds = {s.name: tensor(folder / f"input_{i}.pb") for i, s in enumerate(session.inputs)}
    for i, result in enumerate(session.run(feeds).values()):
        expected = tensor(folder / f"output_{i}.pb")
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)


def tensor(path: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.load_tensor(path))


@pytest.mark.network
@pytest.mark.parametrize("name", real_models.NETWORKS)
def test_raised_networks_compute_the_same(name: str) -> None:
    proto = real_models.load(name)
    session = sessions.reference(proto)
    feeds = real_inputs.random_feed(name, session.inputs)
    before = session.run(feeds)
    assert any(value.any() for value in before.values())
    assert_equal(before, sessions.reference(raised(proto)).run(feeds))
