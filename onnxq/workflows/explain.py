"""Explains one tensor: why it is or is not quantized, with which numbers, and how it is used.

Names are those of the float network: the output of a quantizer, and codes of Q/DQ, count as the
tensor they represent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_graphsurgeon as gs

from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.backend import Backend, chosen_backend
from onnxq.canonical.metadata_texts import RANGE_SOURCES, texts_of
from onnxq.canonical.quantizers import QUANTIZERS, Row, is_quantizer
from onnxq.dialects.quantizing_operators import check_readable
from onnxq.edit import describe, op_name, producer
from onnxq.errors import BackendError, OptionError, near_matches
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.operators.op_kind import kind_of
from onnxq.operators.placement import Placement
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.ort_fusion.prediction import predict
from onnxq.parsing.argument_types import takes
from onnxq.pass_ import Trace
from onnxq.pipeline import Pipeline
from onnxq.reading import canonical, dialects_of
from onnxq.views.shown_result import ShownResult
from onnxq.workflows.fit_to_backend import fit
from onnxq.workflows.torch_names import module_of, selector_of
from onnxq.workflows.write_outputs import write
from passes.collect_qparams import CollectQParams
from passes.remove_fake_quant import RemoveFakeQuant

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_NAMES = 20
"""Names listed if none is similar to the given one."""


@dataclass(frozen=True)
class Use:
    """One consumer of a tensor."""

    node: str
    module: str
    fate: str
    """How the target runs it; '' if unknown."""


@dataclass(frozen=True, repr=False)
class Explanation(ShownResult):
    """Everything known about one tensor."""

    tensor: str
    quantizers: tuple[Row, ...]
    rule: str
    """Why the target does or does not quantize it."""
    origin: tuple[str, ...]
    """The origin of scale and zero point."""
    maker: str
    module: str
    made_in: str
    """How the target runs its producer."""
    uses: tuple[Use, ...]
    selectors: tuple[str, ...]
    """Values of `exclude` of `torch_bridge.prepare` that keep it float."""

    def __repr__(self) -> str:
        how = self.quantizers[0].grid_text if self.quantizers else "not quantized"
        return f"<Explanation of '{self.tensor}': {how}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import lint_tables

        return lint_tables.explanation(self)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return vars(self) | {
            "quantizers": [row.to_json() for row in self.quantizers],
            "origin": list(self.origin),
            "uses": [vars(use) for use in self.uses],
            "selectors": list(self.selectors),
        }


@takes(model=Model, tensor=str, backend=(str, Backend, None), variant=(str, None))
def explain(
    model: Model,
    tensor: str,
    backend: str | Backend | None = None,
    *,
    variant: str | None = None,
) -> Explanation:
    """Explain `tensor`, for `backend` if one is given."""
    if backend is not None:
        backend = chosen_backend(backend, variant)
    elif variant is not None:
        raise OptionError(f"variant '{variant}' needs a backend", fix="give a backend")
    read, traces = canonical(model)
    name = _float_name(model, read, tensor)
    known = _tensors(read)
    named = known.get(name) or _tensors(model)[name]
    collected = Pipeline(CollectQParams()).run(read).model
    plain = Pipeline(RemoveFakeQuant()).run(collected).model
    alias = _name_without_quantizers(named, read)
    table = collected.qparams
    rows = tuple(row for row in (*table, *table.logarithmic) if row.tensor == alias)
    found = _tensors(plain).get(alias)
    seen = named if found is None else found
    fates = {} if backend is None else _fates(model, read, backend)
    maker = producer(seen)
    return Explanation(
        name,
        rows,
        _PART if found is None else _rule(plain, seen, backend, rows),
        _origin(named, traces, rows, model),
        "" if maker is None else describe(maker),
        "" if maker is None else module_of(maker),
        "" if maker is None else _fate(maker, fates),
        tuple(Use(describe(n), module_of(n), _fate(n, fates)) for n in _once(seen.outputs)),
        _selectors(named, None if backend is None else backend.placement),
    )


# -- names -------------------------------------------------------------------------------------


def _tensors(model: Model) -> dict[str, gs.Tensor]:
    found = {t.name: t for t in model.graph.inputs}
    for node in model.nodes():
        found.update((t.name, t) for t in (*node.inputs, *node.outputs) if t.name)
    return found


def _float_name(model: Model, read: Model, tensor: str) -> str:
    """The tensor of the float network that `tensor` represents."""
    for graph in (read, model):
        found = _tensors(graph).get(tensor)
        node = None if found is None else producer(found)
        while node is not None and node.inputs and (is_quantizer(node) or op_name(node) in _PAIR):
            found = node.inputs[0]
            node = producer(found)
        if found is not None:
            return str(found.name)
    raise _unknown(tensor, {*_tensors(model), *_tensors(read)})


_PAIR = (*QUANTIZE, *DEQUANTIZE)
_PART = "it belongs to a quantizer of the model and is not a tensor of the float network"


def _name_without_quantizers(tensor: gs.Tensor, read: Model) -> str:
    """The name of `tensor` without quantizers: graph outputs keep their name."""
    for node in tensor.outputs:
        if is_quantizer(node) and read.is_output(node.outputs[0]):
            return str(node.outputs[0].name)
    return str(tensor.name)


def _unknown(tensor: str, known: set[str]) -> OptionError:
    fix = near_matches(tensor, known)
    if len(known) > MOST_NAMES and not fix.startswith("did you mean"):
        fix = "'onnxq inspect' lists the quantized tensors"
    return OptionError(f"tensor '{tensor}' is not in the model", fix=fix)


def _key(node: gs.Node) -> str:
    return next((t.name for t in node.outputs if t.name), "")


def _once(nodes: list[gs.Node]) -> list[gs.Node]:
    return list({id(n): n for n in nodes}.values())


# -- rules -------------------------------------------------------------------------------------


def _rule(plain: Model, tensor: gs.Tensor, backend: Backend | None, rows: tuple[Row, ...]) -> str:
    if backend is None:
        return (
            "the model quantizes it; add --backend to see which rule requires this"
            if rows
            else "the model does not quantize it; add --backend to see whether a rule requires it"
        )
    places = QuantizerPlaces(plain, backend.placement)
    for node, weight in places.weights():
        if weight is tensor:
            return f"{backend.name} quantizes weights of {kind_of(node)}: {describe(node)}"
    for place in places.activations():
        if any(t is tensor for t in place.tensors):
            shared = [t.name for t in place.tensors if t is not tensor]
            beside = f"; it shares its range with '{shared[0]}'" if shared else ""
            return f"{backend.name} quantizes it: {place.rule}{beside}"
    why = _why_not(tensor, places, backend)
    return (
        f"{backend.name} needs no quantizer here, but the model contains one: {why}"
        if rows
        else f"{backend.name} does not quantize it: {why}"
    )


def _why_not(tensor: gs.Tensor, places: QuantizerPlaces, backend: Backend) -> str:
    placement = backend.placement
    maker = producer(tensor)
    if is_constant(tensor):
        return "it is a constant but not a layer's weight (biases follow input and weight)"
    if maker is not None and kind_of(maker) in placement.moves:
        sources = ", ".join(f"'{s.name}'" for s in places.sources(tensor))
        return (
            f"{describe(maker)} only moves values: they are quantized at their producer, {sources}"
        )
    inside = [n for n in tensor.outputs if kind_of(n) in placement.absorbed]
    if maker is not None and inside and len(inside) == len(tensor.outputs):
        return f"{describe(inside[0])} runs inside {describe(maker)}: quantized after it"
    pairs = {
        (kind_of(n) or "", "" if maker is None else kind_of(maker) or "")
        for n in _once(tensor.outputs)
    }
    if pairs & placement.merged:
        return "its consumer and its producer run as one fused operator"
    beside = ([] if maker is None else [maker]) + _once(tensor.outputs)
    if joining := [n for n in beside if kind_of(n) in placement.joining]:
        return (
            f"{describe(joining[0])} runs on codes only where all it reads is in codes and a layer "
            "that wants codes reads its result; that is not so here"
        )
    kinds = ", ".join(sorted({n.op for n in tensor.outputs}))
    if maker is not None and kind_of(maker) in placement.inputs:
        wants = f"its consumers ({kinds}) want none" if kinds else "no operator reads it"
        return f"{describe(maker)} can write floats there, and {wants}"
    if not kinds:
        return "its producer has no integer kernel, and no operator reads it"
    return f"neither its producer nor its consumers ({kinds}) have an integer kernel there"


def _origin(
    tensor: gs.Tensor, traces: tuple[Trace, ...], rows: tuple[Row, ...], model: Model
) -> tuple[str, ...]:
    """The origin of the numbers: the dialect, the quantizer, and the changes of readers."""
    if not rows:
        return ()
    kinds = dialects_of([op_name(n) for n in model.nodes()], traces)
    found = [f"stored in the model ({', '.join(kinds) or 'canonical'})"]
    told = texts_of(model, RANGE_SOURCES)
    found += [f"range: {told[row.tensor]}" for row in rows if row.tensor in told]
    names = {str(n.name) for n in tensor.outputs if is_quantizer(n) and n.name}
    found += [f"quantizer '{name}'" for name in sorted(names | {r.source for r in rows} - {""})]
    for trace in traces:
        found += [
            f"{trace.name}: {line}"
            for line in trace.rewrites
            if any(line.startswith(f"'{name}' (") for name in names)
        ]
    return tuple(dict.fromkeys(found))


# -- how it is used ------------------------------------------------------------------------------


def _fates(model: Model, read: Model, backend: Backend) -> dict[str, str]:
    """How onnxruntime runs every node, if it is the target."""
    if "deployed" not in backend.sessions:
        return {}
    if model.nodes(*QUANTIZERS):
        check_readable(model)
        try:
            model = write(fit(read, backend).model, backend).model
        except BackendError as error:
            return {_key(n): f"unknown: {error.what.splitlines()[0]}" for n in model.nodes()}
    predicted = predict(model).nodes
    fates: dict[str, str] = {}
    for node in model.nodes():
        found = predicted.get(_key(node))
        if found is not None:
            fate = f"integer kernel {found.kernel}" if found.integer else ""
            # Results that leave the network get another name with their quantizer; nodes do not.
            names = {_key(node), str(node.name)} - {""}
            fates |= dict.fromkeys(names, fate or f"runs in float: {found.reason}")
    return fates


def _fate(node: gs.Node, fates: dict[str, str]) -> str:
    return fates.get(str(node.name)) or fates.get(_key(node), "")


def _selectors(tensor: gs.Tensor, placement: Placement | None) -> tuple[str, ...]:
    """The torch steps that require a quantizer on `tensor`: excluding them keeps it float."""
    maker = producer(tensor)
    asking: list[gs.Node] = []
    if maker is not None and (placement is None or kind_of(maker) in placement.outputs):
        asking.append(maker)
    for reader in tensor.outputs:
        after = [n for t in reader.outputs for n in t.outputs] if is_quantizer(reader) else []
        asking += [
            n
            for n in (after or [reader])
            if not is_quantizer(n) and (placement is None or _asks(n, placement))
        ]
    return tuple(dict.fromkeys(s for s in map(selector_of, asking) if s))


def _asks(node: gs.Node, placement: Placement) -> bool:
    # The weight of a layer comes after its quantizer here, which makes it look like no constant.
    kinds = {kind_of(node), "Linear" if node.op in ("Gemm", "MatMul") else None}
    if not kinds & placement.inputs:
        return False
    # These only run on codes if their result is quantized, too.
    after = [user for tensor in node.outputs for user in tensor.outputs]
    after += [user for n in after for tensor in n.outputs for user in tensor.outputs]
    return not kinds & placement.joining or any(map(is_quantizer, after))
