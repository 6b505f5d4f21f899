"""Why files of PPQ's fork for ESP-DL differ from that tool's own simulation: each cause, written
out and put into what onnxq read, gives the simulation's numbers.

The files lie beside the repository (`../shared/fixtures`) and are not part of it.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import constant, new_node, producer, remove, set_input, users, variable
from onnxq.graph import Model, load
from onnxq.graph.constants import array
from onnxq.reading import canonical
from onnxq.running import sessions
from onnxq.workflows.encodings import with_encodings
from tests.checks.other_tools import outputs, samples
from tests.models.build import quantize, tensor
from tests.models.esp_attention import attend
from tests.models.foreign_files import FOLDER

ROUNDING = 1e-6
"""float32 sums in another order."""

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="no ../shared/fixtures beside")


def fixture(name: str, side_file: str = "") -> tuple[Model, np.ndarray, np.ndarray]:
    """The canonical model, the inputs, and what the tool's simulation gives."""
    folder = FOLDER / name
    model, _ = canonical(load(folder / "model.onnx"))
    if side_file:
        model, _ = with_encodings(model, folder / side_file, allow_missing=True)
    (expected,) = np.load(folder / "expected.npz").values()
    return model, samples(folder, np.dtype(np.float32)), expected


def difference(model: Model, xs: np.ndarray, expected: np.ndarray) -> float:
    (found,) = outputs(sessions.reference(model), xs)
    return float(np.abs(found - expected).max())


def feed_from_outside(model: Model, name: str, example: np.ndarray) -> Model:
    """Let the tensor be an input of the graph instead of a node's output."""
    found = tensor(model, name)
    node = producer(found)
    assert node is not None
    remove(node, model)
    found.dtype, found.shape = example.dtype, example.shape
    model.graph.inputs.append(found)
    return model


def quantizer_of(model: Model, name: str) -> gs.Node:
    (node,) = [n for n in model.nodes(FAKE_QUANTIZE) if n.inputs[0].name == name]
    return node


def step_behind(found: gs.Tensor) -> float:
    """Scale of the quantizer whose codes a tensor holds, through what only moves values."""
    node = found.inputs[0]
    while node.op in {"Reshape", "Transpose"}:
        node = node.inputs[0].inputs[0]
    return float(params_of(node).scale)


def test_8_bit_attention_is_simulated_in_integers() -> None:
    model, xs, expected = fixture("A2/esp-ppq-espdl-int8-qdq")
    assert difference(model, xs, expected) > 0.05
    (node,) = model.nodes("Attention")
    (rounded,) = users(node.outputs[0])
    steps = [*map(step_behind, node.inputs), float(params_of(rounded[0]).scale)]
    names, result = [t.name for t in node.inputs], node.outputs[0].name
    front = sessions.reference(model, names)
    made = []
    for x in xs:
        found = front.run({"x": x[None]})
        made.append(attend(*(found[n] for n in names), steps=steps, scale=node.attrs["scale"]))
    back = sessions.reference(feed_from_outside(model, result, made[0]))
    for x, attended, want in zip(xs, made, expected, strict=True):
        assert np.array_equal(back.run({"x": x[None], result: attended})["y"][0], want)


@pytest.mark.parametrize("variant", ["pplcuda", "qnn", "trt-json"])
def test_one_reader_sees_the_input_unrounded(variant: str) -> None:
    model, xs, expected = fixture(f"A2/esp-ppq-{variant}", "config.json")
    assert difference(model, xs, expected) > 0.03
    node = quantizer_of(model, "x")
    (reader,) = [use for use in users(node.outputs[0]) if use[0].op == "LayerNormalization"]
    set_input(*reader, node.inputs[0])
    assert difference(model, xs, expected) <= ROUNDING


def test_an_ascend_record_lacks_what_convolutions_give() -> None:
    """PPQ rounds it to 256 levels from least to largest, seen in the calibration data."""
    model, xs, expected = fixture("A1/esp-ppq-ascend", "config.txt")
    assert difference(model, xs, expected) > 0.01
    folder = FOLDER / "A1" / "esp-ppq-ascend"
    unquantized, _ = canonical(load(folder / "model.onnx"))
    names = [n.outputs[0].name for n in unquantized.nodes("Conv")]
    session = sessions.reference(unquantized, names)
    calibration = np.load(FOLDER / "A1" / "calib.npz")["x"].astype(np.float32)
    runs = [session.run({"x": x[None]}) for x in calibration]
    for name in names:
        low = min(0.0, *(float(r[name].min()) for r in runs))
        high = max(0.0, *(float(r[name].max()) for r in runs))
        scale = np.float32((high - low) / 255)
        quantize(model, name, qtype="uint8", scale=scale, zero_point=round(-low / scale))
    assert difference(model, xs, expected) <= ROUNDING


def test_one_value_lies_on_the_border_of_two_codes() -> None:
    """An ncnn table holds all that PPQ rounds. Samples agree to the last bits, except where one of
    24,000 values, 4e-6 steps above a border, falls to the other side.
    """
    model, xs, expected = fixture("A1/esp-ppq-ncnn", "config.table")
    (found,) = outputs(sessions.reference(model), xs)
    off = np.flatnonzero(np.abs(found - expected).max(axis=1) > ROUNDING)
    assert len(off) <= 1
    for i in off:
        x = xs[i : i + 1]
        border, values = nearest_to_a_border(model, x)
        back = sessions.reference(feed_from_outside(model, border, values))
        assert np.abs(back.run({"x": x, border: values})["y"] - expected[i]).max() <= ROUNDING


def nearest_to_a_border(model: Model, x: np.ndarray) -> tuple[str, np.ndarray]:
    """Of all activations that are rounded, the tensor that holds the value nearest to the middle
    between two codes, with that value moved to the other side."""
    rounded = [n for n in model.nodes(FAKE_QUANTIZE) if array(n.inputs[0]) is None]
    inner = [n.inputs[0].name for n in rounded if n.inputs[0].name != "x"]
    found = {"x": x, **sessions.reference(model, inner).run({"x": x})}
    nearest: tuple[float, str, np.ndarray] | None = None
    for node in rounded:
        values, scale = found[node.inputs[0].name], float(params_of(node).scale)
        middle = np.floor(values / scale) + 0.5
        away = np.abs(values / scale - middle)
        at = np.unravel_index(away.argmin(), away.shape)
        if nearest is None or away[at] < nearest[0]:
            moved = values.copy()
            moved[at] = 2 * middle[at] * scale - values[at]
            nearest = float(away[at]), node.inputs[0].name, moved
    assert nearest is not None
    assert nearest[0] < 1e-5
    return nearest[1:]


@pytest.mark.parametrize(("bits", "moves"), [(8, False), (16, True)])
def test_sums_of_16_bit_codes_depend_on_their_order(bits: int, moves: bool) -> None:
    """A product of two 8-bit codes takes 14 bits, a sum of 216 of them 22: float32 holds it, and
    all scales are powers of two, so nothing is rounded but by the quantizers. With 16 bits the sum
    takes 38, float32 keeps 24, and the code it gives depends on the order of the terms.
    """
    name = f"A1/esp-ppq-espdl-int{bits}-qdq"
    model, xs, expected = fixture(name)
    turned = with_channels_reversed(fixture(name)[0])
    more = np.load(FOLDER / "A1" / "calib.npz")["x"].astype(np.float32)
    (found,) = outputs(sessions.reference(model), more)
    by_order = difference(turned, more, found)
    assert (by_order > 0) == moves
    assert difference(model, xs, expected) <= by_order


def with_channels_reversed(model: Model) -> Model:
    """The same convolutions, their terms added in another order."""
    for node in model.nodes("Conv"):
        if node.attrs["group"] == 1:
            weight = node.inputs[1].inputs[0].inputs[0]
            channels = weight.values.shape[1]
            weight.values = np.ascontiguousarray(weight.values[:, ::-1])
            order = constant(model, "order", np.arange(channels)[::-1].copy())
            turned = variable(model, "turned", node.inputs[0])
            new_node(
                model, "Gather", [node.inputs[0], order], [turned], name="turn", attrs={"axis": 1}
            )
            set_input(node, 0, turned)
    return model
