from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.errors import InvalidModelError, QParamsError
from onnxq.graph import Model, from_proto
from onnxq.workflows.convert import convert
from tests.checks.integers import canonical, lowered
from tests.models.build import bit_equal, ops, parse, reasons, run

X = np.random.default_rng(0).normal(0, 6, (1, 4, 6, 6)).astype(np.float32)
PARAMETERS = """<float s = {0.1}, uint8 z = {77}, float t = {0.2}, uint8 c = {9}, int32 z32 = {77},
 int64[1] one = {1}, int64[1] three = {3}, int64[1] axis = {2}, int64[2] flat = {1, -1},
 int64[8] pads = {0, 0, 1, 0, 0, 0, 2, 1}, float[4] sizes = {1, 1, 2, 2}, int64[2] ids = {3, 0}>"""


def on_codes(body: str, out: str = "float") -> Model:
    """x -> Q -> body (q to r) -> DQ."""
    return parse(
        f"""g (float[1,4,6,6] x) => ({out} y) {PARAMETERS} {{
        q = QuantizeLinear(x, s, z)
        {body}
        y = DequantizeLinear(r, s, z)
    }}""",
        opset=17,
    )


MOVES = {
    "Reshape": "r = Reshape(q, flat)",
    "Flatten": "r = Flatten(q)",
    "Transpose": "r = Transpose <perm = [0,2,3,1]> (q)",
    "Squeeze": "r = Squeeze(q)",
    "Unsqueeze": "r = Unsqueeze(q, axis)",
    "Slice": "r = Slice(q, one, three, axis)",
    "Gather": "r = Gather <axis = 1> (q, ids)",
    "Split": "o, r = Split <axis = 1> (q)  unused = Relu(x)",
    "MaxPool": "r = MaxPool <kernel_shape = [2,2], pads = [1,1,0,0]> (q)",
    "Pad": "r = Pad(q, pads)",
    "Pad with a code": "r = Pad(q, pads, c)",
    "Pad with a value": "v = QuantizeLinear(s, s, z)  r = Pad(q, pads, v)",
    "Pad by reflection": 'r = Pad <mode = "reflect"> (q, pads)',
    "Resize": 'e = Identity(q)  r = Resize <mode = "nearest"> (e, , sizes)',
    "DepthToSpace": "r = DepthToSpace <blocksize = 2> (q)",
    "SpaceToDepth": "r = SpaceToDepth <blocksize = 2> (q)",
    "Concat": "a = MaxPool <kernel_shape = [1,1]> (q)  r = Concat <axis = 1> (a, q, a)",
    "Chain": "a = Flatten(q)  b = Identity(a)  r = Reshape(b, flat)",
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_codes_is_moving_real_values_bit_for_bit(name: str) -> None:
    model = on_codes(MOVES[name])
    made, trace = lowered(model)
    assert trace.rewrites
    assert bit_equal(run(made, X), run(model, X))
    read = canonical(model)
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(ops(read))
    assert bit_equal(run(read, X), run(model, X))


@pytest.mark.parametrize("copy", ["r = Identity(q)", "r = Cast <to = 2> (q)"])
def test_copies_of_codes_vanish(copy: str) -> None:
    made, _ = lowered(on_codes(copy))
    assert ops(made) == ["QuantizeLinear", "DequantizeLinear"]


def test_codes_in_a_wider_type_are_read_as_they_were() -> None:
    body = f"""g (float[1,4,6,6] x) => (float y) {PARAMETERS} {{
        q = QuantizeLinear(x, s, z)
        r = Cast <to = 6> (q)
        y = DequantizeLinear(r, s)
        w = DequantizeLinear(r, s, z32)
    }}"""
    model = parse(body.replace("y = DequantizeLinear(r, s)", "").replace("w =", "y ="), opset=17)
    made, _ = lowered(model)
    assert ops(made) == ["QuantizeLinear", "DequantizeLinear"]
    # onnxruntime takes no zero point other than 0 for int32 codes: the oracle is the formula.
    want = (np.clip(np.rint(X / np.float32(0.1)) + 77, 0, 255) - 77).astype(np.float32)
    assert bit_equal(run(made, X), [want * np.float32(0.1)])


@pytest.mark.parametrize(
    ("domain", "prefix"), [("com.amd.quark", "Extended"), ("com.vai.quantize", "Vitis")]
)
def test_codes_of_vendors_move_as_those_of_onnx(domain: str, prefix: str) -> None:
    def written(quantize: str, dequantize: str) -> Model:
        return from_proto(
            onnx.parser.parse_model(
                f"""<ir_version: 8, opset_import: ["" : 17, "{domain}" : 1]>
                g (float[1,4,6,6] x) => (float[1,4,3,3] y) <float s = {{0.1}}, uint8 z = {{77}}> {{
                    q = {quantize}(x, s, z)
                    r = MaxPool <kernel_shape = [2,2], strides = [2,2]> (q)
                    y = {dequantize}(r, s, z)
                }}"""
            )
        )

    theirs = f"{domain}.{prefix}QuantizeLinear", f"{domain}.{prefix}DequantizeLinear"
    read = canonical(written(*theirs))
    assert set(ops(read)) == {"FakeQuantize", "MaxPool"}
    assert bit_equal(run(read, X), run(written("QuantizeLinear", "DequantizeLinear"), X))


def test_codes_that_no_onnx_operator_makes_stay_where_they_are() -> None:
    model = from_proto(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17, "com.amd.quark" : 1]>
            g (float[2,3] x) => (float[3,2] y) <float s = {0.1}, bfloat16 z = {0}> {
                q = com.amd.quark.ExtendedQuantizeLinear(x, s, z)
                r = Transpose(q)
                y = com.amd.quark.ExtendedDequantizeLinear(r, s, z)
            }"""
        )
    )
    assert lowered(model)[1].rewrites == []


def test_a_second_run_finds_nothing() -> None:
    for body in MOVES.values():
        made, _ = lowered(on_codes(body))
        assert lowered(made)[1].rewrites == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('r = Resize <mode = "linear"> (q, , sizes)', "between codes"),
        (
            "o = QuantizeLinear(x, t, z)  r = Concat <axis = 1> (o, q)",
            "different scales or zero points",
        ),
    ],
)
def test_what_stays_on_codes_says_why(body: str, why: str) -> None:
    made, trace = lowered(on_codes(body))
    assert trace.rewrites == []
    assert why in reasons(trace)
    assert "Resize" in ops(made) or "Concat" in ops(made)


def test_per_channel_codes_are_not_moved() -> None:
    model = parse(
        """g (float[1,2,3] x) => (float[1,3,2] y)
        <float[2] s = {0.1, 0.2}, uint8[2] z = {1, 2}, float[2] u = {0.1, 0.2}> {
            q = QuantizeLinear <axis = 1> (x, s, z)
            r = Transpose <perm = [0,2,1]> (q)
            y = DequantizeLinear <axis = 2> (r, s, z)
        }"""
    )
    _, trace = lowered(model)
    assert trace.rewrites == []
    assert "one scale per channel" in reasons(trace)


def test_an_embedding_of_codes_is_looked_up_in_real_values() -> None:
    model = parse(
        """g (int64[2] i) => (float[2,2] y)
        <uint8[3,2] table = {1, 2, 3, 4, 5, 6}, float s = {0.5}, uint8 z = {2}> {
            r = Gather(table, i)
            y = DequantizeLinear(r, s, z)
        }"""
    )
    made, trace = lowered(model)
    assert trace.rewrites
    assert ops(made) == ["DequantizeLinear", "Gather"]
    i = np.array([2, 0], np.int64)
    assert bit_equal(run(made, i), run(model, i))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("f = Conv(q, x)  r = Flatten(q)", "Conv.*reads 'q'.*uint8"),
        ("p = QuantizeLinear(q, s, z)  r = Flatten(q)", "QuantizeLinear.*reads 'q'"),
        ("h = Sigmoid(x)  r = Concat <axis = 1> (q, h)", "concatenates 'q'.*'h'"),
    ],
)
def test_operators_that_take_no_codes_are_refused_by_name(body: str, what: str) -> None:
    with pytest.raises(InvalidModelError, match=what) as caught:
        lowered(on_codes(body))
    assert "DequantizeLinear is missing" in str(caught.value.fix)


@pytest.mark.parametrize("scale", [np.inf, -1.0, np.nan])
def test_a_broken_scale_in_front_of_a_pad_is_refused(scale: float) -> None:
    model = on_codes("r = Pad(q, pads)")
    next(c for c in model.graph.record.constants if c.name == "s").values = np.float32(scale)
    with pytest.raises(QParamsError, match="not a positive finite number"):
        convert(model, "onnxruntime")
