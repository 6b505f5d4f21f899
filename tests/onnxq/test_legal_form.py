"""What a backend's pipeline makes of a model, and what lossy passes change on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import onnxq
from onnxq import runtime
from onnxq.backend import Backend
from onnxq.discovery import find_backend
from onnxq.errors import BackendError
from onnxq.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.graph import Model
from onnxq.legal_form import legal_form
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Pipeline
from passes.phases import READ
from passes.retype_activations import RetypeActivations
from passes.widen_range import WidenRange
from tests.build import parse, quantize

X = {"x": np.float32([0.3, -0.7, 1.26, 9.0])}


@dataclass(frozen=True)
class Coarsen(Pass):
    """Double every scale that is not yet large."""

    name: ClassVar[str] = "coarsen"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    limit: float = 0.15

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes(FAKE_QUANTIZE):
            params = params_of(node)
            if params.scale < self.limit:
                set_params(model, node, params.with_(scale=params.scale * 2))
                trace.rewrote(f"'{params.tensor}'", "twice the scale")


def backend(*steps: Pass) -> Backend:
    return replace(find_backend("tensorrt"), pipeline=Pipeline(*READ, *steps))


def net(**fields: object) -> Model:
    return quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x", **fields)


def test_nothing_changes_without_lossy_passes() -> None:
    made = legal_form(net(), backend())
    assert made.change is None
    made = legal_form(net(scale=np.float32(0.2)), backend(Coarsen()))
    assert made.change is None  # it is there and had nothing to do


def test_what_stood_before_and_behind_a_change_is_kept() -> None:
    model = net(lo=-127)
    made = legal_form(model, backend(RetypeActivations(to="int8"), WidenRange(), Coarsen()))
    assert made.change is not None
    before, after = (params_of(m.nodes(FAKE_QUANTIZE)[0]) for m in (made.change.before, made.model))
    assert (float(before.scale), float(after.scale)) == (np.float32(0.1), np.float32(0.2))
    assert before.lo == after.lo == -128  # passes in front of it have run
    assert [t.name for t in made.change.traces] == ["coarsen"]
    assert float(params_of(model.nodes(FAKE_QUANTIZE)[0]).scale) == np.float32(0.1)


def test_notes_name_some_places() -> None:
    model = parse("g (float[4] x) => (float[4] y) { a=Neg(x) b=Neg(a) c=Neg(b) d=Neg(c) y=Neg(d) }")
    for name in ("x", "a", "b", "c", "d", "y"):
        quantize(model, name)
    change = legal_form(model, backend(Coarsen())).change
    assert change is not None
    (note,) = change.notes()
    assert note.startswith("coarsen changes what the model computes: 'x': twice the scale; 'a'")
    assert note.endswith("; and 1 more")


def test_files_are_proven_against_the_change_and_its_cost_is_measured() -> None:
    done = onnxq.convert(net(), backend(Coarsen()), data=[X])
    assert done.proven
    assert [p.what for p in done.proofs][0] == "qdq.onnx (reference)"
    assert [p.what for p in done.proofs][-1] == "before coarsen (canonical)"
    want = runtime.reference(done.source).run(X)["y"]
    got = runtime.reference(done.model).run(X)["y"]
    assert done.cost is not None
    (output,) = done.cost.outputs
    assert output.max == pytest.approx(np.abs(want - got).max() / 0.1)
    assert output.max >= 1
    assert done.to_json()["cost"] == [output.to_json()]


def test_a_fault_in_front_of_a_change_is_found() -> None:
    @dataclass(frozen=True)
    class Wrong(Coarsen):
        """The same, and does not say that it is lossy."""

        name: ClassVar[str] = "wrong"
        lossy: ClassVar[bool] = False

    done = onnxq.convert(net(), backend(Wrong(), Coarsen(limit=1.0)), data=[X])
    assert not done.proven
    assert [p.passed for p in done.proofs][-1] is False


def test_a_change_is_not_measured_where_nothing_is_verified() -> None:
    done = onnxq.convert(net(), backend(Coarsen()), verify=False)
    assert (done.proofs, done.cost) == ((), None)
    assert any(note.startswith("coarsen changes") for note in done.notes)


def test_what_the_scheme_does_not_have_is_named() -> None:
    with pytest.raises(BackendError, match=r"'x' \(activation\): .*zero point 3 \(must be 0\)"):
        legal_form(net(zero_point=3), backend())
