"""Running a model on data: parts, bodies, resuming, and what is wrong with data."""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.errors import LoadError, OptionError
from onnxq.graph import load
from onnxq.graph.constants import array
from onnxq.observing import observe as observing
from onnxq.observing import side_by_side
from onnxq.observing.observe import Part, constant_tensors, observe
from onnxq.observing.range_methods import Method
from onnxq.observing.statistics import Statistics, merged
from onnxq.observing.tensor_statistics import Wanted
from onnxq.quant.grid_of_range import grid_numbers
from onnxq.quant.scheme import QSpec
from onnxq.running import large_models, sessions
from tests.models.build import parse
from tests.models.foreign_files import FOLDER

BODY = """g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1, -2, 3, 0.5}>
{ h = MatMul(x, w)  y = Relu(h) }"""
MODEL = parse(BODY)
WANTED = {"x": Wanted(channels=-1, spread=True), "h": Wanted(), "y": Wanted(rows=-1)}
DATA = np.random.default_rng(0).normal(size=(11, 1, 2)).astype(np.float32)
WHOLE = observe(MODEL, WANTED, DATA).dumps()


def test_statistics_are_those_of_numpy() -> None:
    found = observe(MODEL, WANTED, DATA)
    values = DATA.reshape(-1, 2).astype(np.float64) @ np.array([[1, -2], [3, 0.5]])
    assert found.samples == 11
    histogram = found.tensors["h"].histogram
    np.testing.assert_allclose([histogram.low, histogram.high], [values.min(), values.max()], 1e-6)
    assert found.tensors["y"].histogram.low == 0
    assert found.tensors["x"].histogram.high == DATA.max()
    np.testing.assert_allclose(
        found.tensors["x"].channels.sum.mean(), DATA.mean(axis=(0, 1)), atol=1e-7
    )


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 11])
def test_parts_in_any_order_are_one_run(parts: int) -> None:
    made = [observe(MODEL, WANTED, DATA, part=Part(i, parts)) for i in range(parts)]
    for order in (made, made[::-1]):
        assert merged(order).dumps() == WHOLE


@pytest.mark.parametrize("form", ["folder", "npz", "list", "generator"])
def test_every_form_of_data_gives_the_same(form: str, tmp_path: Path) -> None:
    given: Any = DATA
    if form == "folder":
        for number, sample in enumerate(DATA):
            np.save(tmp_path / f"{number:02}.npy", sample)
        given = tmp_path
    elif form == "npz":
        given = tmp_path / "a.npz"
        np.savez(given, x=DATA)
    elif form == "list":
        given = list(DATA)
    else:
        given = iter(DATA)
    assert observe(MODEL, WANTED, given).dumps() == WHOLE


def test_the_first_samples_only() -> None:
    first = observe(MODEL, WANTED, DATA[:5]).dumps()
    assert observe(MODEL, WANTED, DATA, most=5).dumps() == first
    parts = [observe(MODEL, WANTED, DATA, part=Part(i, 2), most=5) for i in range(2)]
    assert merged(parts).dumps() == first


def test_an_endless_source_is_read_no_further() -> None:
    def endless() -> Iterator[np.ndarray]:
        yield from DATA[:3]
        raise AssertionError("a fourth sample was asked for")

    assert observe(MODEL, WANTED, endless(), most=3).samples == 3


def test_a_part_without_samples() -> None:
    with pytest.raises(LoadError, match="no sample is left for part 12/12"):
        observe(MODEL, WANTED, DATA, part=Part(11, 12))
    empty = observe(MODEL, WANTED, DATA, part=Part(11, 12), may_be_empty=True)
    assert empty.samples == 0
    others = [observe(MODEL, WANTED, DATA, part=Part(i, 12)) for i in range(11)]
    assert merged([empty, *others]).dumps() == WHOLE


@pytest.mark.parametrize(("text", "part"), [("1/1", Part(0, 1)), ("3/8", Part(2, 8))])
def test_part_as_text(text: str, part: Part) -> None:
    assert Part.parse(text) == part
    assert str(part) == text


@pytest.mark.parametrize("text", ["", "3", "0/8", "9/8", "a/b", "1/", "-1/2", "1/0"])
def test_what_is_no_part(text: str) -> None:
    with pytest.raises(OptionError, match="not a part") as error:
        Part.parse(text)
    assert "3/8" in error.value.fix


def test_a_part_is_divided_into_parts() -> None:
    numbers = [n for p in Part(2, 3).divided(4) for n in range(p.index, 40, p.of)]
    assert sorted(numbers) == list(range(2, 40, 3))


# -- bodies -------------------------------------------------------------------------------------

IF = """g (bool c, float[2] x) => (float[2] y) {
  y = If (c) <
    then_branch = t () => (float[2] a) { inner = Neg(x)  a = Abs(inner) },
    else_branch = e () => (float[2] b) { other = Exp(x)  b = Relu(other) }>
}"""


def test_a_branch_is_observed_only_when_it_ran() -> None:
    wanted = {"inner": Wanted(), "other": Wanted()}
    feeds = [{"c": np.array(n < 2), "x": np.array([n + 1.0, 0.0], np.float32)} for n in range(3)]
    found = observe(parse(IF), wanted, feeds)
    inner, other = found.tensors["inner"], found.tensors["other"]
    assert (inner.extremes.count, inner.histogram.low, inner.histogram.high) == (2, -2.0, 0.0)
    assert other.extremes.count == 1
    never = observe(parse(IF), wanted, feeds[:2]).tensors["other"]
    assert never.is_empty


def test_channels_in_a_loop_are_those_of_the_tensor() -> None:
    loop = """g (float[1,3,2] x, int64 n, bool go) => (float[1,3,2] y)
    <float[1,3,1] gain = {1, 10, 100}> {
      y = Loop (n, go, x) <
        body = b (int64 i, bool c, float[1,3,2] state) => (bool d, float[1,3,2] next)
          { d = Identity(c)  made = Mul(x, gain)  next = Add(state, made) }>
    }"""
    feed = {"x": np.ones((1, 3, 2), np.float32), "n": np.array(4), "go": np.array(True)}
    found = observe(
        parse(loop),
        {"made": Wanted(channels=1, spread=True), "state": Wanted(channels=1, spread=True)},
        feed,
    )
    channels = found.tensors["made"].channels
    assert channels is not None
    assert channels.high.tolist() == [1, 10, 100]
    carried = found.tensors["state"].channels
    assert carried is not None
    assert carried.high.tolist() == [4, 31, 301]


def test_bodies_and_large_models_run_without_fusions(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime's fusions in a body can lose an input whose values are shown (Missing Input).

    Of large models they may make new weights.
    """
    kinds: list[str] = []
    made = sessions._open

    def recording(model: Any, kind: Any, *more: Any) -> Any:
        kinds.append(kind)
        return made(model, kind, *more)

    monkeypatch.setattr(sessions, "_open", recording)
    observe(parse(IF), {"inner": Wanted()}, [{"c": np.array(True), "x": np.ones(2, np.float32)}])
    plain = observe(MODEL, WANTED, DATA)
    monkeypatch.setattr(large_models, "LARGE", 0)
    large = observe(MODEL, WANTED, DATA)
    assert kinds == ["reference", "shipped", "reference"]
    for name, seen in plain.tensors.items():  # sums may be rounded differently
        ends = [(each.histogram.low, each.histogram.high) for each in (seen, large.tensors[name])]
        np.testing.assert_allclose(ends[1], ends[0], rtol=1e-5)


# -- cores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [1, 2, 5, 40])
def test_statistics_do_not_depend_on_the_cores(cores: int) -> None:
    assert observe(MODEL, WANTED, DATA, cores=cores).dumps() == WHOLE


@pytest.mark.parametrize(("most", "threads"), [(64, [1]), (40, [1, 2]), (15, [1, 4])])
def test_cores_share_the_nodes_of_samples_too_large_to_be_side_by_side(
    most: int, threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each sample 16 bytes are fetched."""
    monkeypatch.setattr(side_by_side, "MOST_BYTES", most)
    opened: list[int] = []
    made = sessions.observing

    def recording(*given: Any, **options: Any) -> Any:
        opened.append(options["threads"])
        return made(*given, **options)

    monkeypatch.setattr(sessions, "observing", recording)
    assert observe(MODEL, WANTED, DATA, cores=4).dumps() == WHOLE
    assert opened == threads


def test_one_sample_larger_than_those_before_slows_all_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At no time there are more than two samples of 16 bytes, or one of 160."""
    model = parse(BODY.replace("float[1,2]", "float[1,N,2]"))
    data = [np.ones((1, 10 if number == 6 else 1, 2), np.float32) for number in range(12)]
    monkeypatch.setattr(side_by_side, "MOST_BYTES", 32)
    at_once: list[int] = []
    add = observing._Run.add

    def recording(self: Any, *given: Any) -> None:
        add(self, *given)
        at_once.append(self.at_once)

    monkeypatch.setattr(observing._Run, "add", recording)
    observe(model, WANTED, data, cores=4)
    assert at_once == [2] * 6 + [1] * 6


def test_samples_are_taken_in_in_order_and_an_error_is_that_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float] = []
    observe(MODEL, WANTED, DATA, cores=4, watch=lambda feed: seen.append(float(feed["x"][0, 0])))
    assert seen == [float(sample[0, 0]) for sample in DATA]
    broken = DATA.copy()
    broken[[6, 7, 9]] = np.nan
    with pytest.raises(LoadError, match="sample 7 "):
        observe(MODEL, WANTED, broken, cores=4)


# -- resuming -----------------------------------------------------------------------------------


def interrupting(after: int) -> Callable[[str], None]:
    calls = iter(range(100))

    def progress(_: str) -> None:
        if next(calls) == after:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("after", [0, 1, 5, 10])
@pytest.mark.parametrize("seconds", [0.0, 100.0])
def test_a_run_that_was_interrupted_goes_on(
    after: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "SAVE_SECONDS", seconds)
    resume = tmp_path / "a.partial"
    with pytest.raises(KeyboardInterrupt):
        observe(MODEL, WANTED, DATA, resume=resume, progress=interrupting(after))
    left = Statistics.load(resume)
    assert left.samples == after
    assert left.unfinished
    again: list[str] = []
    assert observe(MODEL, WANTED, DATA, resume=resume, progress=again.append).dumps() == WHOLE
    assert len(again) == 11 - after


def test_a_kill_loses_no_more_than_the_time_between_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "SAVE_SECONDS", 0.0)
    resume = tmp_path / "a.partial"

    class Killed(BaseException):
        """Nothing is cleaned up after it."""

    def progress(text: str) -> None:
        if text.endswith(" 7"):
            raise Killed

    with pytest.raises(Killed):
        observe(MODEL, WANTED, DATA, resume=resume, progress=progress)
    assert Statistics.load(resume).samples == 6
    assert observe(MODEL, WANTED, DATA, resume=resume).dumps() == WHOLE


def test_a_sample_is_taken_in_whole_when_the_interrupt_comes_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = tmp_path / "a.partial"
    add = observing._Run.add

    def interrupted(self: Any, sample: Any, values: Any, found: Statistics) -> None:
        if sample.number == 4:
            _thread.interrupt_main()
        add(self, sample, values, found)

    monkeypatch.setattr(observing._Run, "add", interrupted)
    # A shell starts what runs in the background with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            observe(MODEL, WANTED, DATA, resume=resume)
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(observing._Run, "add", add)
    assert Statistics.load(resume).samples == 5
    assert observe(MODEL, WANTED, DATA, resume=resume).dumps() == WHOLE


@pytest.mark.parametrize("what", ["model", "tensors", "part", "most", "data", "broken"])
def test_the_file_of_another_run_is_refused(what: str, tmp_path: Path) -> None:
    resume, data = tmp_path / "a.partial", tmp_path / "a.npz"
    np.savez(data, x=DATA)
    with pytest.raises(KeyboardInterrupt):
        observe(MODEL, WANTED, data, resume=resume, progress=interrupting(3))
    before = resume.read_bytes()
    model, wanted, options = MODEL, WANTED, {}
    if what == "model":
        model = parse(BODY.replace("0.5", "0.25"))
    elif what == "tensors":
        wanted = {"x": Wanted()}
    elif what == "part":
        options["part"] = Part(0, 2)
    elif what == "most":
        options["most"] = 5
    elif what == "data":
        data = tmp_path / "b.npz"
        np.savez(data, x=DATA)
    else:
        before = b"broken"
        resume.write_bytes(before)
    with pytest.raises(LoadError) as error:
        observe(model, wanted, data, resume=resume, **options)
    assert str(resume) in error.value.what
    assert resume.read_bytes() == before


# -- bad data -----------------------------------------------------------------------------------


def test_no_data_is_an_error_not_random_values() -> None:
    with pytest.raises(LoadError, match="need data") as error:
        observe(MODEL, WANTED, None)
    assert "--data" in error.value.fix


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_input_that_is_not_finite_is_named(value: float, tmp_path: Path) -> None:
    for number, sample in enumerate(np.resize(DATA, (40, 1, 2))):
        np.save(tmp_path / f"{number:02}.npy", sample)
    np.save(tmp_path / "36.npy", np.array([[0.0, value]], np.float32))
    with pytest.raises(LoadError, match=r"sample 37 .*36\.npy.*input 'x'.*not finite") as error:
        observe(MODEL, WANTED, tmp_path)
    assert "remove the sample" in error.value.fix


@pytest.mark.parametrize(("body", "named"), [("Exp(x)", "infinity"), ("Log(x)", "NaN")])
def test_a_tensor_that_overflows_is_named(body: str, named: str) -> None:
    model = parse(f"g (float[2] x) => (float[2] y) {{ h = {body}  y = Relu(h) }}")
    data = [np.array([1, 2], np.float32), np.array([-1, 1000], np.float32)]
    with pytest.raises(LoadError, match=rf"sample 2 .*tensor 'h' contains {named}"):
        observe(model, {"h": Wanted()}, data)


def test_constant_tensors_are_found() -> None:
    found = observe(MODEL, WANTED, np.zeros((3, 1, 2), np.float32))
    assert constant_tensors(found) == ["x", "h", "y"]
    assert constant_tensors(observe(MODEL, WANTED, DATA)) == []


# -- another tool -------------------------------------------------------------------------------


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no ../shared/fixtures beside the repository")
@pytest.mark.parametrize("network", ["A1", "A2"])
@pytest.mark.parametrize(
    ("fixture", "kind"), [("ort-qdq-u8s8", "uint8"), ("ort-qdq-u16s8-pc", "uint16")]
)
def test_extremes_give_the_quantizers_that_onnxruntime_chose(
    network: str, fixture: str, kind: str
) -> None:
    floats, spec = load(FOLDER / network / "float.onnx"), QSpec((kind,))
    known = {t.name for t in floats.graph.inputs} | {
        t.name for node in floats.nodes() for t in node.outputs
    }
    theirs = {
        node.inputs[0].name: (array(node.inputs[1]), array(node.inputs[2]))
        for node in load(FOLDER / network / fixture / "model.onnx").nodes("QuantizeLinear")
        # It gives every Softmax the range 0 to 1, whatever was seen.
        if node.inputs[0].name in known and "Softmax" not in node.inputs[0].name
    }
    assert len(theirs) >= 13
    found = observe(floats, dict.fromkeys(theirs, Wanted()), FOLDER / network / "calib.npz")
    for name, (scale, zero_point) in theirs.items():
        low, high = Method("min-max").range(found.tensors[name].seen, spec)
        mine, zero = grid_numbers(np.float64(low), np.float64(high), spec)
        # Its activations come from a model with other fusions, so the last bits may differ.
        np.testing.assert_allclose(mine, scale, rtol=1e-6, err_msg=name)
        assert abs(int(zero) - int(zero_point)) <= (kind == "uint16"), name
