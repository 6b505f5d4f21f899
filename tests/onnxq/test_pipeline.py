"""Pipelines as values: text form, order, running, and who sees what."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq import edit, pipeline
from onnxq.errors import InvalidModelError, OptionError, PassError, SaveError
from onnxq.graph import Model, constants, from_proto, load
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Dump, Pipeline, Timing
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from tests.models.zoo_build import Build


@dataclass(frozen=True)
class Write(Pass):
    """Takes options of every kind."""

    name: ClassVar[str] = "write"
    path: str
    label: str | None = None
    count: int = 3
    ratio: float = 0.5
    flag: bool = False
    mode: Literal["fast", "exact"] = "fast"
    maybe: int | None = None


@dataclass(frozen=True)
class Negate(Pass):
    """Put a Neg behind every Relu."""

    name: ClassVar[str] = "negate"
    after: ClassVar[tuple[str, ...]] = ("rename",)

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes("Relu"):
            edit.insert(
                model,
                node.outputs[0],
                lambda x, y, graph: edit.new_node(model, "Neg", [x], [y], name="neg", graph=graph),
            )
            trace.rewrote(node)


@dataclass(frozen=True)
class Rename(Pass):
    """Give every node a name of its own."""

    name: ClassVar[str] = "rename"
    prefix: str = "n"

    def run(self, model: Model, trace: Trace) -> None:
        for node in model.nodes():
            node.name = model.fresh_name(self.prefix)
            trace.rewrote(node)


@dataclass(frozen=True)
class Orphan(Pass):
    """Cut the Relu loose, so that nobody needs what made its input."""

    name: ClassVar[str] = "orphan"

    def run(self, model: Model, trace: Trace) -> None:
        edit.set_input(model.nodes("Relu")[0], 0, model.graph.inputs[0])
        trace.rewrote("Relu")


@dataclass(frozen=True)
class Mess(Pass):
    """Change everything a model has."""

    name: ClassVar[str] = "mess"

    def run(self, model: Model, trace: Trace) -> None:
        model.require_opset(21, "mess")
        model.require_ir(10, "mess")
        model.header.producer_name = "mess"
        model.qparams.add(QParams("x", qtype("int8"), np.ones(()), np.zeros(())))
        for node in model.nodes():
            node.attrs["alpha"] = 2.0
            node.name = model.fresh_name("messy")
        relu = model.nodes("Relu")[0]
        edit.set_input(relu, 0, edit.constant(model, "c", np.zeros(2, np.float32)))
        model.graph.name = "mess"
        trace.rewrote("all")


@dataclass(frozen=True)
class Fail(Pass):
    """Raise, or leave a broken graph behind."""

    name: ClassVar[str] = "fail"
    how: Literal["pass", "value", "graph"] = "pass"

    def run(self, model: Model, trace: Trace) -> None:
        if self.how == "pass":
            raise PassError("tensor 'x' has two scales", fix="run 'unify-scales'")
        if self.how == "value":
            raise ValueError("a fault of the program")
        edit.set_input(model.nodes("Relu")[0], 0, edit.variable(model, "ghost", None))


KNOWN: dict[str, type[Pass]] = {c.name: c for c in (Write, Negate, Rename, Orphan, Mess, Fail)}


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Pipeline]:
    """Pipeline.parse that knows the passes of this file."""
    monkeypatch.setattr(pipeline, "find_pass", KNOWN.__getitem__)
    return Pipeline.parse


def small_model() -> Model:
    """y = Relu(Abs(x) * 2)"""
    b = Build(opset=17)
    x = b.op("Mul", b.op("Abs", b.input("x", [2])), b.init(np.float32([2, 2]), "two"))
    return from_proto(b.model(b.op("Relu", x, out="y")))


def ops(model: Model) -> list[str]:
    return [node.op_type for node in model.to_proto().graph.node]


# -- reading the text form ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        ("  ", []),
        ("rename", [Rename()]),
        ("rename{}", [Rename()]),
        (" rename , negate ", [Rename(), Negate()]),
        ("rename{prefix=a},negate", [Rename("a"), Negate()]),
        ("write{path=a count=4}", [Write("a", count=4)]),
        ("write{path=a,count=4}", [Write("a", count=4)]),
        ("write { path = a , count = -4 }\n", [Write("a", count=-4)]),
        ("write{path=/data/set-1/x.json}", [Write("/data/set-1/x.json")]),
        ("write{path=../x/~y+z@1:2.npz}", [Write("../x/~y+z@1:2.npz")]),
        (r"write{path=C:\new\x}", [Write(r"C:\new\x")]),
        ("write{path='a b, {c}=d'}", [Write("a b, {c}=d")]),
        (r"write{path='it\'s'}", [Write("it's")]),
        (r"write{path='C:\\a b'}", [Write(r"C:\a b")]),
        ("write{path=''}", [Write("")]),
        ("write{path='  '}", [Write("  ")]),
        ("write{path=größe/模型.onnx}", [Write("größe/模型.onnx")]),
        ("write{path=x label=none}", [Write("x", label=None)]),
        ("write{path=none label='none'}", [Write("none", label="none")]),
        ("write{path=x ratio=1e+16 mode=exact}", [Write("x", ratio=1e16, mode="exact")]),
        ("write{path=x flag=TRUE maybe=1}", [Write("x", flag=True, maybe=1)]),
        ("rename,rename,rename", [Rename(), Rename(), Rename()]),
    ],
)  # fmt: skip
def test_parse(parse: Callable[[str], Pipeline], text: str, steps: list[Pass]) -> None:
    read = parse(text)
    assert list(read) == steps
    assert parse(str(read)) == read


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (",rename", "a pass name is expected, not ','"),
        ("rename,", "it ends with a comma"),
        ("rename,,negate", "a pass name is expected, not ','"),
        ("rename negate", "a comma is expected before 'negate'"),
        ("rename}", "a comma is expected before '}'"),
        ("{prefix=a}", "a pass name is expected, not '{'"),
        ("'rename'", "a pass name is expected, not 'rename'"),
        ("rename{prefix=a", "a '}' is missing"),
        ("rename{prefix}", "an option is written name=value (near 'prefix')"),
        ("rename{prefix a}", "an option is written name=value (near 'prefix')"),
        ("rename{=a}", "an option is written name=value (near '=')"),
        ("rename{'prefix'=a}", "an option is written name=value (near 'prefix')"),
        ("rename{prefix=}", "option 'prefix' has no value"),
        ("rename{prefix=,}", "option 'prefix' has no value"),
        ("rename{prefix=a prefix=b}", "duplicate option 'prefix'"),
        ("rename{prefix=a b}", "an option is written name=value (near 'b')"),
        ("rename{prefix= 'a b}", "the quote at position 15 is not closed"),
        ("rename{prefix=it's}", "the quote at position 16 is not closed"),
    ],
)
def test_unreadable_text(parse: Callable[[str], Pipeline], text: str, why: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(text)
    assert caught.value.what == f"cannot read the pipeline '{text}': {why}"
    assert "fold-batch-norm,to-qdq{opset=21}" in caught.value.fix


def test_options_are_type_checked(parse: Callable[[str], Pipeline]) -> None:
    with pytest.raises(OptionError, match="option 'count' of 'write' cannot be 'many'"):
        parse("write{path=a count=many}")


def test_unknown_pass_lists_near_matches() -> None:
    with pytest.raises(OptionError) as caught:
        Pipeline.parse("fold-batchnorm")
    assert caught.value.what == "unknown pass 'fold-batchnorm'"
    assert "'fold-batch-norm'" in caught.value.fix
    assert "'onnxq passes' lists all" in caught.value.fix


def test_unknown_option_of_a_real_pass_lists_near_matches() -> None:
    with pytest.raises(OptionError) as caught:
        Pipeline.parse("to-qdq{opsett=21}")
    assert caught.value.what == "pass 'to-qdq' has no option 'opsett'"
    assert caught.value.fix == "did you mean 'opset'?"


words = st.text() | st.text(alphabet=" ,{}='\"\\none\n\t\r\x85\u2028aé/.") | st.just("none")
writes = st.builds(
    Write,
    path=words,
    label=st.none() | words,
    count=st.integers(),
    ratio=st.floats(allow_nan=False),
    flag=st.booleans(),
    mode=st.sampled_from(["fast", "exact"]),
    maybe=st.none() | st.integers(),
)
steps = st.lists(writes | st.builds(Rename, words) | st.builds(Orphan), max_size=4)


@given(steps)
def test_text_form_reads_back_as_an_equal_pipeline(made: list[Pass]) -> None:
    before = Pipeline(*made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "find_pass", KNOWN.__getitem__)
        after = Pipeline.parse(str(before))
    assert after == before
    assert hash(after) == hash(before)
    for old, new in zip(before, after, strict=True):
        for option in old.options():
            assert type(getattr(old, option)) is type(getattr(new, option))


@given(st.text(alphabet="ab,{}=' \\\n", max_size=20))
def test_any_text_is_read_or_refused_with_an_option_error(text: str) -> None:
    with contextlib.suppress(OptionError):
        for name, options in pipeline._split(text):
            assert name
            assert name in text
            assert all(options)


# -- the value ------------------------------------------------------------------------------


def test_pipelines_compare_and_hash_by_their_passes() -> None:
    assert Pipeline(Rename("a")) == Pipeline(Rename("a")) != Pipeline(Rename("b"))
    assert len({Pipeline(Rename()), Pipeline(Rename()), Pipeline()}) == 2
    assert Pipeline() != ()
    assert repr(Pipeline(Rename("a"))) == "Pipeline('rename{prefix=a}')"
    assert len(Pipeline(Rename(), Orphan())) == 2


@pytest.mark.parametrize("more", [Pipeline(Negate()), (Negate(),), [Negate()]])
def test_add(more: Any) -> None:
    first = Pipeline(Rename())
    assert first + more == Pipeline(Rename(), Negate())
    assert first == Pipeline(Rename())


def test_without() -> None:
    line = Pipeline(Rename("a"), Orphan(), Rename("b"), Negate())
    assert line.without("rename") == Pipeline(Orphan(), Negate())
    assert line.without("rename", "orphan", "negate") == Pipeline()
    assert len(line) == 4
    with pytest.raises(OptionError) as caught:
        line.without("orphan", "write")
    assert caught.value.what == "the pipeline has no pass 'write'"
    assert caught.value.fix == f"its passes: {line}"


def test_insert_after_the_last_of_that_name() -> None:
    line = Pipeline(Rename("a"), Rename("b"), Orphan())
    made = line.insert_after("rename", Mess(), Negate())
    assert made == Pipeline(Rename("a"), Rename("b"), Mess(), Negate(), Orphan())
    assert line.insert_after("orphan", Mess()).steps[-1] == Mess()
    with pytest.raises(OptionError) as caught:
        Pipeline().insert_after("rename", Mess())
    assert caught.value.fix == "its passes: none"


def test_order_is_checked_when_the_value_is_built() -> None:
    with pytest.raises(OptionError) as caught:
        Pipeline(Negate(), Rename())
    assert caught.value.what == "pass 'negate' comes before 'rename'"
    assert caught.value.fix == "put 'rename' before 'negate'"


def test_order_is_checked_in_every_way_to_build(parse: Callable[[str], Pipeline]) -> None:
    for build in (
        lambda: parse("negate,rename"),
        lambda: Pipeline(Negate()) + Pipeline(Rename()),
        lambda: Pipeline(Negate(), Orphan()).insert_after("negate", Rename()),
    ):
        with pytest.raises(OptionError, match="comes before"):
            build()


def test_order_binds_only_passes_that_are_there() -> None:
    assert Pipeline(Negate()).without("negate") == Pipeline()
    assert len(Pipeline(Rename(), Negate(), Rename())) == 3


# -- running --------------------------------------------------------------------------------


def test_run_gives_model_and_one_trace_a_pass() -> None:
    source = small_model()
    result = Pipeline(Rename("k"), Negate()).run(source)
    assert ops(result.model) == ["Abs", "Mul", "Relu", "Neg"]
    assert [t.name for t in result.traces] == ["rename", "negate"]
    assert len(result.traces[0].rewrites) == 3
    assert all(t.seconds > 0 for t in result.traces)


def test_an_empty_pipeline_still_copies() -> None:
    source = small_model()
    result = Pipeline().run(source)
    assert result.model is not source
    assert result.model.to_proto() == source.to_proto()
    assert result.traces == ()


def test_the_callers_model_is_never_changed() -> None:
    source = small_model()
    before = source.to_proto()
    result = Pipeline(Mess(), Rename(), Negate()).run(source)
    assert result.model.to_proto() != before
    assert source.to_proto() == before
    assert (source.opset, source.ir_version, source.upgrades) == (17, 8, [])
    assert len(source.qparams) == 0


def test_the_callers_model_is_not_changed_by_a_pass_that_fails() -> None:
    source = small_model()
    before = source.to_proto()
    with pytest.raises(PassError):
        Pipeline(Mess(), Fail()).run(source)
    assert source.to_proto() == before


def test_values_shared_with_the_caller_cannot_be_written() -> None:
    model = Pipeline().run(small_model()).model
    weight = constants.array(model.nodes("Mul")[0].inputs[1])
    assert weight is not None
    with pytest.raises(ValueError, match="read-only"):
        weight[0] = 5


def test_in_place_changes_the_model_itself() -> None:
    source = small_model()
    result = Pipeline(Negate()).run(source, in_place=True)
    assert result.model is source
    assert ops(source)[-1] == "Neg"


def test_what_nobody_reads_is_swept_after_each_pass() -> None:
    seen: list[int] = []
    result = Pipeline(Orphan(), Rename()).run(
        small_model(), lambda index, step, model, trace: seen.append(len(model.nodes()))
    )
    assert seen == [1, 1]
    assert ops(result.model) == ["Relu"]


def test_raising_the_opset_is_noted_in_the_pass_that_did_it() -> None:
    result = Pipeline(Rename(), Mess(), Rename()).run(small_model())
    assert [bool(t.notes) for t in result.traces] == [False, True, False]
    assert any("21" in note and "mess" in note for note in result.traces[1].notes)


@pytest.mark.parametrize(("how", "kind"), [("pass", PassError), ("value", ValueError)])
def test_an_error_keeps_its_type_and_names_pass_and_history(
    how: Literal["pass", "value"], kind: type[Exception]
) -> None:
    line = Pipeline(Rename(), Orphan(), Fail(how), Rename())
    with pytest.raises(kind) as caught:
        line.run(small_model())
    assert caught.value.__notes__ == [
        "in pass 'fail' (number 3 of 4; before it: rename, orphan)"
    ]  # fmt: skip


def test_an_error_in_the_first_pass_says_so() -> None:
    with pytest.raises(PassError) as caught:
        Pipeline(Fail()).run(small_model())
    assert caught.value.__notes__ == ["in pass 'fail' (number 1 of 1; before it: nothing)"]


def test_a_pass_that_breaks_the_graph_is_named() -> None:
    with pytest.raises(InvalidModelError, match="'ghost', which has no producer") as caught:
        Pipeline(Rename(), Fail("graph")).run(small_model())
    assert caught.value.__notes__ == ["in pass 'fail' (number 2 of 2; before it: rename)"]


@pytest.mark.parametrize("behind", [Rename(), Fail("value")])
def test_a_pass_that_breaks_the_graph_is_named_though_others_ran_behind_it(behind: Pass) -> None:
    with pytest.raises(InvalidModelError, match="'ghost', which has no producer") as caught:
        Pipeline(Rename(), Fail("graph"), behind).run(small_model())
    assert caught.value.__notes__ == ["in pass 'fail' (number 2 of 3; before it: rename)"]


def test_a_graph_broken_in_place_says_how_to_find_the_pass() -> None:
    with pytest.raises(InvalidModelError, match="'ghost', which has no producer") as caught:
        Pipeline(Rename(), Fail("graph")).run(small_model(), in_place=True)
    assert caught.value.__notes__ == [
        "after 'rename,fail{how=graph}', in place: run on a copy to find the pass"
    ]


def test_the_check_can_be_left_out() -> None:
    result = Pipeline(Fail("graph")).run(small_model(), check=False)
    with pytest.raises(InvalidModelError):
        result.model.check()


# -- observers ------------------------------------------------------------------------------


def test_observers_see_every_pass_in_order() -> None:
    seen: list[tuple[str, int, str, int]] = []

    def watch(who: str) -> pipeline.Observer:
        return lambda index, step, model, trace: seen.append(
            (who, index, step.name, len(trace.rewrites))
        )

    Pipeline(Rename(), Negate()).run(small_model(), watch("a"), watch("b"))
    assert seen == [
        *(("a", 0, "rename", 3), ("b", 0, "rename", 3)),
        *(("a", 1, "negate", 1), ("b", 1, "negate", 1)),
    ]


def test_passes_that_were_run_before_are_left_out() -> None:
    """Who watches sees the others where they are in the whole pipeline, and so do errors."""
    seen: list[tuple[int, str]] = []
    whole = Pipeline(Rename(), Negate(), Orphan())
    renamed = Pipeline(Rename()).run(small_model()).model
    result = whole.run(renamed, lambda i, step, *_: seen.append((i, step.name)), start=1)
    assert seen == [(1, "negate"), (2, "orphan")]
    assert [trace.name for trace in result.traces] == ["negate", "orphan"]
    assert result.model.to_proto() == whole.run(small_model()).model.to_proto()
    with pytest.raises(InvalidModelError) as caught:
        Pipeline(Rename(), Negate(), Fail("graph")).run(renamed, start=1)
    assert caught.value.__notes__ == ["in pass 'fail' (number 3 of 3; before it: rename, negate)"]


@pytest.mark.parametrize("start", [-1, 2])
def test_a_start_outside_the_pipeline_is_refused(start: int) -> None:
    with pytest.raises(OptionError, match=f"no start {start}"):
        Pipeline(Rename()).run(small_model(), start=start)


@dataclass(frozen=True)
class Sleep(Pass):
    """Take a known time."""

    name: ClassVar[str] = "sleep"

    def run(self, model: Model, trace: Trace) -> None:
        time.sleep(0.02)


def test_timing_adds_up_per_pass() -> None:
    timing = Timing()
    traces = Pipeline(Sleep(), Rename(), Sleep()).run(small_model(), timing).traces
    assert list(timing.seconds) == ["sleep", "rename"]
    assert timing.seconds["sleep"] == traces[0].seconds + traces[2].seconds >= 0.04
    assert timing.seconds["rename"] == traces[1].seconds
    assert Timing().seconds == {}


def test_dump_writes_a_loadable_model_after_every_pass(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    Pipeline(Rename(), Negate()).run(small_model(), Dump(folder))
    assert sorted(p.name for p in folder.iterdir()) == ["01-rename.onnx", "02-negate.onnx"]
    assert ops(load(folder / "01-rename.onnx")) == ["Abs", "Mul", "Relu"]
    assert ops(load(folder / "02-negate.onnx")) == ["Abs", "Mul", "Relu", "Neg"]
    onnx.checker.check_model(str(folder / "02-negate.onnx"), full_check=True)


def test_dump_stops_before_the_pass_that_failed(tmp_path: Path) -> None:
    with pytest.raises(PassError):
        Pipeline(Rename(), Fail(), Rename()).run(small_model(), Dump(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["01-rename.onnx"]


def test_dump_into_a_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(SaveError, match="taken"):
        Pipeline(Rename()).run(small_model(), Dump(tmp_path / "taken"))


# -- passes of one's own that do it wrong ------------------------------------------------------


@dataclass(frozen=True)
class Returning(Pass):
    name: ClassVar[str] = "returning"

    def run(self, model: Model, trace: Trace) -> None:
        return model  # type: ignore[return-value]


@dataclass(frozen=True)
class Nameless(Pass):
    def run(self, model: Model, trace: Trace) -> None:
        pass


@dataclass(frozen=True)
class Choosing(Returning):
    kind: Literal["this", "that"] = "this"


def test_a_pass_that_returns_something_is_told() -> None:
    with pytest.raises(PassError, match=r"run\(\) of 'returning' returned a Model"):
        Pipeline(Returning()).run(small_model())


@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (Nameless(), "set name: ClassVar"),
        ((Returning(),), "write a star before it"),
        (Pipeline(Returning()), "write a star before it"),
        (Choosing(kind="thsi"), "did you mean 'this'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_step_is_refused(step: Any, fix: str) -> None:
    with pytest.raises(OptionError) as caught:
        Pipeline(step)
    assert fix in caught.value.fix
