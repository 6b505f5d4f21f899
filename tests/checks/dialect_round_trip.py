"""Canonical models written in a dialect and read back: same table, same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.errors import PassError
from onnxq.graph import Model, from_proto, load
from onnxq.pass_ import Pass
from onnxq.pipeline import Pipeline
from onnxq.reading import constants_frozen
from onnxq.running import sessions
from tests.models.build import bit_equal, parse, quantize, weight
from tests.models.dialects import table
from tests.models.foreign_files import FOLDER as FIXTURES
from tests.models.zoo import inputs


def rows_without_source(model: Model) -> list[dict[str, Any]]:
    """All rows of a canonical model, without the names of the nodes they come from."""
    rows = [row.to_json() for row in table(model)]
    for row in rows:
        row.pop("source", None)
    return sorted(rows, key=lambda row: (row["tensor"], str(row.get("readers")), str(row)))


def round_trip(model: Model, write: Pass, read: Pass) -> tuple[Model, Model]:
    """What `write` made of a canonical model, and what `read` makes of that file."""
    written = Pipeline(write).run(model).model
    back = Pipeline(read).run(from_proto(written.to_proto())).model
    return written, back


def assert_same_again(model: Model, write: Pass, read: Pass) -> Model:
    """`write` then `read` give the table and, bit for bit, the numbers back; what was written."""
    written, back = round_trip(model, write, read)
    assert rows_without_source(back) == rows_without_source(model)
    for seed in (0, 1):
        feeds = inputs(model.to_proto(), seed)
        want = sessions.reference(model).run(feeds)
        have = sessions.reference(back).run(feeds)
        assert list(have) == list(want)
        assert bit_equal(have.values(), want.values())
    return written


def refusal(model: Model, write: Pass) -> str:
    """Why `write` cannot write the model; '' where it can."""
    try:
        Pipeline(write).run(model)
    except PassError as error:
        return error.what
    return ""


def with_unwritable_quantizers() -> Model:
    """Blocks, float16 and an unknown rank in one model, each of which some dialects lack."""
    codes = ",".join(["1"] * 64)
    model = parse(
        f"""g (float[2,32] x, float16[4] h) => (float[2,2] y, float16[4] r)
        <float[32,2] w = {{{codes}}}> {{
            n = Neg(x)
            y = MatMul(n, w)
            r = Relu(h)
        }}"""
    )
    quantize(model, "h")
    quantize(model, "n", scale=np.float32([0.1] * 32), axis=1)
    scale = np.full((2, 2), 0.1, np.float32)
    return weight(model, "w", scale=scale, zero_point=np.zeros((2, 2)), axis=0, block=16)


def assert_refused_together(model: Model, write: Pass, *more: str) -> None:
    """One error names all four quantizers of such a model: its own, and another with `more`."""
    said = refusal(model, write)
    assert said.startswith("4 quantizers")
    for word in ("'w'", "per block", "'h'", "float16", "'n'", "rank", *more):
        assert word in said


def fixture(name: str) -> Model:
    """A model of another tool, its initializers constants."""
    return constants_frozen(load(FIXTURES / name / "model.onnx"))


def fixture_inputs(name: str) -> list[np.ndarray]:
    """The test inputs of the network, one sample each."""
    x = np.load(FIXTURES / name.partition("/")[0] / "test.npz")["x"]
    return [x[i : i + 1] for i in range(len(x))]


def first_output(model: Any, x: np.ndarray) -> np.ndarray:
    """The first output in the reference session."""
    session = sessions.reference(model)
    return next(iter(session.run({session.inputs[0].name: x}).values()))
