"""Sessions of onnxruntime that run a model.

Three kinds, since one model gives three results on an x86 CPU without VNNI instructions:

* `reference`: no graph optimisation. Q/DQ graphs run in float, which is the meaning of the graph.
  Integer operators (QLinearConv ...) are computed by `integer_reference`, since onnxruntime's
  kernels for them saturate at every level.
* `deployed`: all optimisations, with 8-bit weights kept out of the kernels that saturate
  (`session.x64quantprecision`): the result of integer hardware whose sums do not overflow.
* `shipped`: onnxruntime's own default. Its 8-bit kernels add two u8 × s8 products in 16 bits and
  clip the sum, so a correct model can be wrong by dozens of steps here.

onnxruntime is imported by the first session, not by this module.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import onnx
from google.protobuf.message import EncodeError

from onnxq.disk.scratch import scratch_folder
from onnxq.errors import LoadError, OnnxqError, UnsupportedModelError, VerifyError, near_matches
from onnxq.quant.qparams import Array
from onnxq.running.integer_reference import (
    IntegerModel,
    holds_integer_operators,
    is_integer_operator,
)
from onnxq.running.large_models import can_be_written, in_running_order, is_large, lean, written_out
from onnxq.running.ort_crashes import check_survives
from onnxq.running.ort_errors import ort_errors, reason
from onnxq.running.ort_session import new_options, start
from onnxq.running.ort_tensors import TensorSpec, from_ort, is_native, spec_of, to_ort
from onnxq.running.temporary_weights import Spill
from onnxq.running.unsigned_weights import with_unsigned_weights
from onnxq.running.window_sizes import check_windows, has_windows
from onnxq.storage.function_form import all_nodes
from onnxq.storage.model_files import read_model

if TYPE_CHECKING:
    from onnxq.graph import Model

ModelSource: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | Model | OpenModel"
Kind: TypeAlias = Literal["reference", "deployed", "shipped"]

_KINDS: Mapping[Kind, tuple[str, Mapping[str, str]]] = {
    "reference": ("ORT_DISABLE_ALL", {}),
    "deployed": ("ORT_ENABLE_ALL", {"session.x64quantprecision": "1"}),
    "shipped": ("", {}),
}
"""Optimisation level and config entries of each kind of session."""

# Operators whose integer matrix product saturates at every optimisation level, with the position
# of the weight: products with uint8 weights use another kernel, which is exact.
_INTEGER_PRODUCTS = {
    "QLinearConv": 3,
    "QLinearMatMul": 3,
    "QGemm": 3,
    "ConvInteger": 1,
    "MatMulInteger": 1,
    "MatMulIntegerToFloat": 1,
    "DynamicQuantizeMatMul": 1,
    "DynamicQuantizeLSTM": 1,
    "QAttention": 1,
}


class Session:
    """A model ready to run.

    Attributes:
        inputs: name, shape and dtype of every value `run` needs.
        outputs: the same for every value it returns; taps come after the model's own outputs.
        kind: one of the three kinds.
        note: a remark for the user, or "".
    """

    def __init__(
        self,
        session: Any,
        kind: Kind,
        note: str = "",
        spill: Spill | None = None,
        integers: IntegerModel | None = None,
    ) -> None:
        self._session = session
        self._integers = integers  # computes the model in onnxruntime's place
        self._spill = spill  # onnxruntime maps these weights: they live as long as the session
        self._fallback: Callable[[], Session] | None = None
        self._check_ranks: Callable[[Mapping[str, Array]], None] | None = None
        self.kind = kind
        self.note = note
        self.inputs: tuple[TensorSpec, ...] = tuple(map(spec_of, session.get_inputs()))
        self.outputs: tuple[TensorSpec, ...] = tuple(map(spec_of, session.get_outputs()))

    def run(
        self, feeds: Mapping[str, Array], only: Iterable[str] | None = None
    ) -> dict[str, Array]:
        """Run once and return the outputs in order (all, or the names in `only`)."""
        self._check(feeds)
        if self._check_ranks is not None:
            self._check_ranks(feeds)
        names = [o.name for o in self.outputs] if only is None else list(only)
        specs = {o.name: o for o in self.outputs}
        for name in names:
            if specs[name].dtype is None:
                raise UnsupportedModelError(
                    f"output '{name}' is of type {specs[name].type}, not a tensor",
                    fix="make the model return tensors, or leave this output out",
                )
        try:
            values = self._run(feeds, [specs[n] for n in names])
        except ort_errors() as error:
            if self._fallback is not None:
                return self._fall_back(error, feeds, names)
            raise VerifyError(
                f"onnxruntime could not run the model: {reason(error)}",
                fix="check the shapes and values of the inputs, or give real ones with --data",
            ) from error
        return dict(zip(names, values, strict=True))

    def _run(self, feeds: Mapping[str, Array], wanted: list[TensorSpec]) -> list[Array]:
        names = [o.name for o in wanted]
        if self._integers is not None:
            made = self._integers.run(feeds, names)
            return [made[name] for name in names]  # a graph may have one output twice
        if all(map(is_native, (*wanted, *self.inputs))):
            return list(self._session.run(names, dict(feeds)))
        given = {i.name: to_ort(i, feeds[i.name]) for i in self.inputs}
        raw = self._session.run_with_ort_values(names, given)
        return [from_ort(o, value) for o, value in zip(wanted, raw, strict=True)]

    def _fall_back(
        self, error: Exception, feeds: Mapping[str, Array], names: list[str]
    ) -> dict[str, Array]:
        """Become the fallback session if it can run these feeds; else they are at fault."""
        assert self._fallback is not None
        other = self._fallback()
        values = other.run(feeds, names)
        self._session, self._spill, self._fallback = other._session, other._spill, None
        self._integers = other._integers
        self.kind, self.note = other.kind, _fallback_note(reason(error))
        return values

    def _check(self, feeds: Mapping[str, Array]) -> None:
        known = {i.name for i in self.inputs}
        for name in feeds:
            if name not in known:
                raise VerifyError(f"the model has no input '{name}'", fix=near_matches(name, known))
        for spec in self.inputs:
            if spec.name not in feeds:
                raise VerifyError(
                    f"input '{spec.name}' ({spec}) is missing", fix="give a value for every input"
                )
            dtype = feeds[spec.name].dtype
            if dtype != spec.dtype and not (spec.type == "tensor(string)" and dtype.kind in "OUT"):
                raise VerifyError(
                    f"input '{spec.name}' is {spec}, but the value given is {dtype}",
                    fix="convert the value to the input's type",
                )


def reference(source: ModelSource, taps: Iterable[str] = ()) -> Session:
    """A session without graph optimisation: the meaning of float and Q/DQ graphs."""
    return _open(source, "reference", taps)


def deployed(source: ModelSource, taps: Iterable[str] = ()) -> Session:
    """A fully optimised session whose 8-bit products do not saturate.

    onnxruntime refuses some correct files in this mode (zero points shared between weights, for
    one). They run in the reference session instead, and `note` says so.
    """
    taps = tuple(taps)
    try:
        made = _open(source, "deployed", taps)
    except LoadError:
        raise
    except OnnxqError as refused:
        made = _open(source, "reference", taps)  # if this fails too, the model itself is at fault
        made.note = _fallback_note(reason(refused.__cause__ or refused))
    else:
        # A few of its faults show only when it runs.
        made._fallback = functools.cache(lambda: _open(source, "reference", taps))
    return made


def _fallback_note(why: str) -> str:
    if "replace the existing tensor" in why:
        why = "weights share one zero-point initializer, which it cannot handle in this mode"
    return f"onnxruntime rejects the optimised session ({why}); the reference session ran instead"


def shipped(source: ModelSource, taps: Iterable[str] = ()) -> Session:
    """The default session of onnxruntime, without any settings."""
    return _open(source, "shipped", taps)


def session(source: ModelSource, kind: Kind, taps: Iterable[str] = ()) -> Session:
    """A session of the given kind."""
    openers = {"reference": reference, "deployed": deployed, "shipped": shipped}
    return openers[kind](source, taps)


def observing(
    source: ModelSource, taps: Iterable[str], *, optimized: bool = True, threads: int = 0
) -> Session:
    """A session of a float model for the values of its tensors: the fastest.

    Of a large model the optimiser might make new weights: it runs as it is. A node is computed by
    so many `threads`, 0 for one on each core.
    """
    opened = open_model(source)
    plain = not optimized or is_large(opened.proto)
    return _open(opened, "reference" if plain else "shipped", taps, threads)


def integer_ops(source: ModelSource, kind: Kind = "shipped") -> list[str]:
    """Nodes whose integer kernels may saturate in a session that does not avoid it.

    In the reference session these are the few that `integer_reference` does not compute. An
    unnamed node is given by its first output.
    """
    graph = open_model(source).proto.graph
    types = {t.name: t.data_type for t in graph.initializer}
    found = [n for n in graph.node if kind != "reference" or not is_integer_operator(n)]
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    bodies = (body for attribute in attributes for body in (attribute.g, *attribute.graphs))
    found += all_nodes(node for body in bodies for node in body.node)
    return [
        node.name or node.output[0]
        for node in found
        if node.op_type in _INTEGER_PRODUCTS
        and node.domain in ("", "ai.onnx", "com.microsoft", "com.microsoft.nhwc")
        and len(node.input) > (weight := _INTEGER_PRODUCTS[node.op_type])
        and types.get(node.input[weight]) != onnx.TensorProto.UINT8
    ]


@dataclass(frozen=True)
class OpenModel:
    """A model read once for several sessions: its protobuf and the place of its weights."""

    proto: onnx.ModelProto
    label: str
    path: Path | None = None  # the file it came from
    spill: Spill | None = None  # large weights of a Model in memory

    @property
    def folder(self) -> Path | None:
        """The folder that locations of external data refer to."""
        if self.path is not None:
            return self.path.resolve().parent
        return None if self.spill is None else self.spill.folder


def open_model(source: ModelSource) -> OpenModel:
    """Read a model without its external data."""
    if isinstance(source, OpenModel):
        return source
    if isinstance(source, onnx.ModelProto):
        return OpenModel(source, f"graph '{source.graph.name}'", spill=Spill())
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            return OpenModel(read_model(path), f"'{path}'", path)
        except LoadError as error:
            raise LoadError(f"{path}: {error.what}", fix=error.fix) from error
    if not hasattr(source, "to_proto"):
        raise TypeError(f"a model is a Model, a ModelProto or a path, not {source!r:.80}")
    spill = Spill()
    proto = source.to_proto(spill.write)
    return OpenModel(proto, f"graph '{proto.graph.name}'", spill=spill)


def _open(source: ModelSource, kind: Kind, taps: Iterable[str] = (), threads: int = 0) -> Session:
    taps = tuple(taps)
    opened = open_model(source)
    label = opened.label
    check_survives(opened.proto, label, optimized=kind != "reference")
    made, spill = (_started_lean if is_large(opened.proto) else _started)(
        opened, kind, taps, threads
    )
    integers: IntegerModel | None = None
    if kind == "reference" and holds_integer_operators(opened.proto):
        integers = IntegerModel(opened, [o.name for o in made.get_outputs()], reference)
    session = Session(made, kind, spill=spill, integers=integers)
    ranked = all(i.type.tensor_type.HasField("shape") for i in opened.proto.graph.input)
    if not ranked and has_windows(opened.proto):
        session._check_ranks = lambda feeds: check_windows(
            opened.proto, label, {name: feed.shape for name, feed in feeds.items()}
        )
    return session


def _started(
    opened: OpenModel, kind: Kind, taps: Iterable[str], threads: int
) -> tuple[Any, Spill | None]:
    """A session of onnxruntime, and the weights that must live as long."""
    options = new_options(*_KINDS[kind], threads)
    if opened.path is not None and not taps:
        return start(os.fspath(opened.path), opened.label, options), opened.spill
    model = _message(opened, opened.proto, taps)
    # A plan of all memory of a run is taken by each of several at once, and on top of its results.
    options.enable_mem_pattern = not taps
    return start(model, opened.label, _in_folder(options, opened.folder)), opened.spill


def _started_lean(
    opened: OpenModel, kind: Kind, taps: Iterable[str], threads: int
) -> tuple[Any, Spill | None]:
    """The same for a large model."""
    level, config = _KINDS[kind]
    label, folder, spill = opened.label, opened.folder, opened.spill
    proto = in_running_order(opened.proto)
    apart = kind != "reference" and can_be_written(proto)
    if apart and kind == "deployed":
        spill = Spill()
        proto = with_unsigned_weights(proto, folder, spill)
        folder = spill.folder or folder
    model = _message(opened, proto, taps)
    options = lean(_in_folder(new_options(level, config, threads), folder))
    if apart:
        optimized = Spill()
        model = written_out(model, label, options, optimized.make_folder(), weights=True)
        spill, folder = optimized, optimized.folder
    elif proto.functions and can_be_written(proto):
        with scratch_folder() as inlined:
            model = written_out(model, label, options, inlined, weights=False)
    else:
        return start(model, label, options), spill
    options = lean(_in_folder(new_options("ORT_DISABLE_ALL", config, threads), folder))
    return start(model, label, options), spill


def _in_folder(options: Any, folder: Path | None) -> Any:
    """The options of a model that is loaded from memory, but has its data files in a folder."""
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder)
        )
    return options


def _message(opened: OpenModel, proto: onnx.ModelProto, taps: Iterable[str]) -> bytes:
    """`proto` serialised, with taps as outputs; it stays untouched."""
    outputs = _tapped(proto.graph, taps)
    try:
        whole = proto.SerializeToString()
    except (EncodeError, ValueError):  # 2 GiB or more, which no file could hold
        if opened.spill is None:
            raise
        whole = opened.spill.lighten(proto).SerializeToString()
    # Concatenated messages merge: the new outputs join those of the graph.
    return whole + onnx.ModelProto(graph=onnx.GraphProto(output=outputs)).SerializeToString()


def _tapped(graph: onnx.GraphProto, taps: Iterable[str]) -> list[onnx.ValueInfoProto]:
    """New graph outputs for `taps`; onnxruntime infers their types."""
    taps = tuple(dict.fromkeys(taps))
    if not taps:
        return []
    present = {o.name for o in graph.output}
    known = {name for node in graph.node for name in node.output if name}
    known.update(i.name for i in graph.input)
    for name in taps:
        if name not in known:
            raise VerifyError(f"the graph has no tensor '{name}'", fix=near_matches(name, known))
    return [onnx.ValueInfoProto(name=name) for name in taps if name not in present]
