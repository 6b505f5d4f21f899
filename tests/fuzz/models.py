"""Attacks with model files: whatever is changed in a model, it is refused or handled rightly.

The mutated file is loaded, saved, read into the canonical form, inspected, explained, linted and
converted for a backend. Each of these may end in an OnnxqError. What comes out has to compute what
onnxruntime computes when it runs the mutated file itself, without onnxq: so a wrong reading cannot
be proven against itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto

from onnxq.backend import Backend, backends
from onnxq.canonical.fake_quantize import DOMAIN
from onnxq.errors import OnnxqError
from onnxq.graph import TABLE_KEY, Model, load, save
from onnxq.operators.integer_operators import MICROSOFT
from onnxq.proof.verify import verify
from onnxq.reading import canonical
from onnxq.running import sessions
from onnxq.running.integer_reference import holds_integer_operators
from onnxq.running.samples import samples
from onnxq.workflows.convert import convert
from onnxq.workflows.explain import explain
from onnxq.workflows.lint_model import lint
from onnxq.workflows.summary import summarize
from tests.checks.same_model import differences
from tests.fuzz import good_models
from tests.fuzz.mutations import DATA, MUTATIONS, attributes_of, flip_bytes, tensors_of, values_of
from tests.fuzz.outcome import Outcome
from tests.fuzz.overflowing_codes import has_overflowing_codes
from tests.models.dialect_functions import OPENVINO, QONNX, runnable

BACKENDS = sorted(b.name for b in backends().values() if isinstance(b, Backend) and b.writes)
RUNS_AS_WRITTEN = ("onnxruntime", "tensorrt", "openvino", "tvm", "iree", "academic")
"""Backends whose first file is a whole model that onnxruntime runs."""

_VALUES: dict[int, Any] = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
"""The field of an attribute that its type names."""

Outputs = dict[str, np.ndarray]


def attack(seed: int, folder: Path) -> Outcome:
    """Make the broken file of this seed in `folder` and try everything on it."""
    rng = random.Random(seed)
    content, story = broken_model(rng)
    path = folder / "model.onnx"
    path.write_bytes(content)
    (folder / "data.bin").write_bytes(DATA)
    try:
        return _tried(path, rng, folder)
    except OnnxqError as error:
        if error.what and error.fix:
            return Outcome.REFUSED
        raise AssertionError(f"seed {seed} ({story}): not helpful: {error!r}") from error
    except Exception as error:
        error.add_note(f"seed {seed}: {story}")
        raise AssertionError(f"seed {seed} ({story}): {type(error).__name__}: {error}") from error


def broken_model(rng: random.Random) -> tuple[bytes, str]:
    """The bytes of a model with one to three changes, and what they are."""
    group = rng.choices(range(4), weights=(5, 4, 2, 2))[0]
    at = rng.randrange(len(good_models.groups()[group]))
    content, name = good_models.content(group, at), good_models.groups()[group][at][0]
    if rng.random() < 0.04:
        return flip_bytes(content, rng), f"{name}: flip_bytes"
    proto = onnx.load_from_string(content)
    chosen = [rng.choice(MUTATIONS) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    for mutation in chosen:
        mutation(proto, rng)
    return proto.SerializeToString(), f"{name}: {', '.join(m.__name__ for m in chosen)}"


def _tried(path: Path, rng: random.Random, folder: Path) -> Outcome:
    model = load(path)
    source = _Source(path)
    again = folder / "again.onnx"
    if _may_be_refused(lambda: save(model, again)):
        _assert_kept(path, again)
        kept = _must(lambda: load(again), "the saved model cannot be loaded")
        source.same_as(kept, "the saved model", exact=True)
    read = _may_be_refused(lambda: canonical(model))
    backend = rng.choice(BACKENDS)
    if read is None:
        _may_be_refused(lambda: summarize(load(path)))
    else:
        source.same_as(read[0], "the canonical form")
        _looked_at(path, read[0], backend, rng)
    done = convert(path, backend, count=1)
    # A code more than the range was trained with is for values that the proof does not meet.
    widened = any(trace.name == "widen-range" and trace.rewrites for trace in done.traces)
    whole = backend in RUNS_AS_WRITTEN and done.change is None and not widened
    if done.proven and whole and source.runs:
        compare = partial(verify, source.trusted, done.model, source.feeds)
        report = _must(compare, f"proven for {backend}, but cannot be compared with the file")
        undefined = any(output.source_nan for output in report.outputs)
        assert report.passed or undefined, (
            f"proven for {backend}, but differs from the file: {report.outputs}"
        )
    return Outcome.EQUAL


def _assert_kept(path: Path, again: Path) -> None:
    """Check that a model which no pass touched says what it said, also where nothing runs it."""
    before, after = (onnx.load(p, load_external_data=False) for p in (path, again))
    tensors = (*tensors_of(before), *tensors_of(after))
    own = (*before.opset_import, *before.functions)
    if (
        any(each.domain == DOMAIN for each in own)  # functions are made afresh, and imported
        or any(entry.key == TABLE_KEY for entry in before.metadata_props)
        or any(tensor.external_data for tensor in tensors)
    ):
        return
    for proto in (before, after):
        # Of several declarations of a tensor the last one counts.
        told = {info.name: info for info in proto.graph.value_info}
        kept = onnx.GraphProto(value_info=told.values())
        del proto.graph.value_info[:]
        proto.graph.value_info.extend(kept.value_info)
        for attribute in attributes_of(proto):  # what its type does not name is no part of it
            said = _VALUES.get(attribute.type, "")
            for name in set(_VALUES.values()) - {said}:
                attribute.ClearField(name)
    found = differences(before, after, sort_nodes=True)
    assert not found, f"the saved model differs: {found[:3]}"


def _may_be_refused(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OnnxqError:
        return None


def _must(action: Callable[[], Any], otherwise: str) -> Any:
    try:
        return action()
    except OnnxqError as error:
        raise AssertionError(f"{otherwise}: {error.what}") from error


def _looked_at(path: Path, read: Model, backend: str, rng: random.Random) -> None:
    _may_be_refused(lambda: summarize(load(path)).to_json())
    _may_be_refused(lambda: lint(load(path), backend).to_json())
    names = [t.name for node in read.nodes() for t in (*node.inputs, *node.outputs) if t.name]
    if names:
        name = rng.choice(names)
        _may_be_refused(lambda: explain(load(path), name, backend).to_json())


class _Source:
    """The mutated file as onnxruntime runs it."""

    def __init__(self, path: Path) -> None:
        self.trusted: Any = path
        self.feeds: list[Any] = []
        self.outputs: list[Outputs] = []
        self.complete: Callable[[onnx.ModelProto], onnx.ModelProto] = lambda proto: proto
        """Adds the functions that the file was given in order to run."""
        self.rounds = False
        """Whether the file computes in another order than its canonical form."""
        try:
            proto = onnx.load(path, load_external_data=False)
            private = any(f.domain != DOMAIN for f in proto.functions)
            private |= any(n.domain == MICROSOFT for n in proto.graph.node)
            # Weights that callers may replace are not packed, and are summed in another order.
            inputs = {info.name for info in proto.graph.input}
            frozen = any(tensor.name in inputs for tensor in proto.graph.initializer)
            self.rounds = private or frozen or holds_integer_operators(proto)
            if has_overflowing_codes(proto):
                return
            session = self._session(proto)
            self.feeds = list(samples(session, None, count=2, seed=0))
            self.outputs = [session.run(feed) for feed in self.feeds]
            # Integer operators are computed by onnxq; onnxruntime has to run them as well.
            sessions.shipped(self.trusted).run(self.feeds[0])
        except (OnnxqError, DecodeError):
            self.outputs = []

    def _session(self, proto: onnx.ModelProto) -> sessions.Session:
        """The file, with functions for the operators of other dialects where it needs them."""
        try:
            return sessions.reference(self.trusted)
        except OnnxqError:
            if not _has_public_meaning(proto):
                raise
            self.trusted, self.rounds = runnable(proto), True
            self.complete = runnable
            return sessions.reference(self.trusted)

    @property
    def runs(self) -> bool:
        """Whether onnxruntime runs it."""
        return bool(self.outputs)

    def _run(self, proto: onnx.ModelProto) -> list[Outputs]:
        session = sessions.reference(self.complete(proto))
        names = {i.name for i in session.inputs}
        return [session.run({k: v for k, v in f.items() if k in names}) for f in self.feeds]

    def same_as(self, model: Model, what: str, *, exact: bool = False) -> None:
        """Check that `model` computes the same where onnxruntime runs the file."""
        if not self.runs or not (proto := _may_be_refused(model.to_proto)):
            return
        made = _may_be_refused(lambda: self._run(proto))
        if made is None:
            # A false declaration, which stays in the model, stops onnxruntime at some operators
            # only. What the model computes without declarations must be right all the same.
            del proto.graph.value_info[:]
            made = _must(lambda: self._run(proto), f"{what} does not run, but the file does")
        for got, want in zip(made, self.outputs, strict=True):
            assert list(got) == list(want), f"{what} has other outputs: {list(got)}"
            for name in want:
                _assert_close(got[name], want[name], f"{what}, output '{name}'", exact, self.rounds)


def _has_public_meaning(proto: onnx.ModelProto) -> bool:
    """Whether its private operators are those that `tests.models.dialect_functions` spells out."""
    nodes = [n for n in proto.graph.node if n.domain in (QONNX, OPENVINO)]
    modes = [a.s.upper() for n in nodes for a in n.attribute if a.name == "rounding_mode"]
    read = {name for node in nodes for name in node.input[1:]}
    bounds = [values_of(t) for t in proto.graph.initializer if t.name in read]
    # What rounding leaves of a bound of 3e38 is more than any number in the data.
    sane = all(v is None or not np.any(np.abs(v.astype(np.float64)) > 1e30) for v in bounds)
    return bool(nodes) and sane and set(modes) <= {b"ROUND"} and not proto.functions


def _assert_close(got: np.ndarray, want: np.ndarray, where: str, exact: bool, rounds: bool) -> None:
    assert got.dtype == want.dtype, f"{where}: {got.dtype} instead of {want.dtype}"
    assert got.shape == want.shape, f"{where}: {got.shape} instead of {want.shape}"
    if got.tobytes() == want.tobytes():
        return
    if np.array_equal(got, want):
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    if np.isnan(b).any():  # of a NaN a quantizer makes any code: no proof is given for these
        return
    ends = float(np.finfo(np.float32).max)
    a, b = np.nan_to_num(a, nan=ends).clip(-ends, ends), b.clip(-ends, ends)
    worst, size = float(np.abs(a - b).max()), float(np.abs(b).max()) or 1.0
    # Sums in another order move a code here and there: one of 127 of the largest value.
    allowed = 0.01 * size if rounds and not exact else 0.0
    assert worst <= allowed, f"{where}: {worst} of {size}"
