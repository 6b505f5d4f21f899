"""A model in memory: a graphsurgeon graph plus everything graphsurgeon would lose.

Passes see the plain graphsurgeon objects (`node.inputs`, `tensor.outputs`, `gs.Constant` ...) and
change them with the verbs of `onnxq.edit`. Reading and writing go through `importer` and
`exporter`, never through `gs.import_onnx` and `gs.export_onnx`, which drop metadata, break on
4-bit tensors and rename initializers of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx_graphsurgeon as gs
from onnx import FunctionProto, GraphProto, ModelProto, helper

from onnxq.disk.data_file import Origin
from onnxq.disk.file_set import FileSet
from onnxq.errors import InvalidModelError, LoadError, OnnxqError
from onnxq.graph.checks import check_graph
from onnxq.graph.cloning import clone_graph, clone_tensor
from onnxq.graph.copies import Copyable
from onnxq.graph.dead_code import sweep
from onnxq.graph.hooks import HOOKS
from onnxq.graph.shown_model import ShownModel
from onnxq.parsing.argument_types import FLAG, PATH, takes
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.storage import exporter, importer, model_files
from onnxq.storage.domains import QUANTIZERS, changed_domain
from onnxq.storage.domains import domain_of as domain_of
from onnxq.storage.exporter import live_nodes
from onnxq.storage.function_calls import check_functions
from onnxq.storage.gc_pause import gc_paused
from onnxq.storage.importer import bodies, holders
from onnxq.storage.tensors import to_tensor_proto

TABLE_KEY = "onnxq.qparams"
"""metadata_props key for table rows that have no node of their own."""

MAX_OPSET, MAX_IR = 26, 13
"""The newest version that onnxruntime loads; onnx's own defaults are newer."""

_MODEL_BODY = {"graph", "functions", "opset_import"}


class Model(Copyable, ShownModel):
    """One ONNX model that passes can edit."""

    def __init__(
        self,
        graph: gs.Graph,
        header: ModelProto,
        opsets: dict[str, int],
        functions: list[FunctionProto],
    ) -> None:
        self.graph = graph
        self.header = header
        self.opsets = opsets
        self.functions = functions
        self.qparams = QParamTable()
        self.upgrades: list[str] = []
        """Reasons why the opset or IR version was raised so far, for reports."""
        self.export_notes: list[str] = []
        """Versions that the last `to_proto` had to raise."""
        self.origin: Origin | None = None
        """The files it was loaded from, also after passes: saving must not destroy them."""
        self.made: list[gs.Constant] = []
        self._names: set[str] | None = None
        self._counters: dict[str, int] = {}
        self._node_names: set[str] | None = None
        self._node_counters: dict[str, int] = {}
        self._outputs: set[int] = set()
        self._flat = False
        """Whether the main graph is known to be the only one, which is the usual case."""
        self.refresh()

    # -- looking ----------------------------------------------------------------------------

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return self.opsets.get("", self.opsets.get("ai.onnx", 1))

    @property
    def ir_version(self) -> int:
        """Version of the file format."""
        return int(self.header.ir_version)

    def graphs(self) -> Iterator[gs.Graph]:
        """The main graph, then every body inside it."""
        if self._flat:
            yield self.graph
            return
        stack = [self.graph]
        while stack:
            graph = stack.pop()
            yield graph
            for node in holders(graph):
                stack.extend(bodies(node))

    def nodes(self, *ops: str) -> list[gs.Node]:
        """Nodes of all graphs, those of a body after the node that contains it.

        `ops` are op types of the default domain, or 'domain::Op'; none means all nodes.
        """
        if not ops:
            return live_nodes(self.graph) if self._flat else self._nodes_with_bodies()
        wanted = {tuple(op.rpartition("::")[::2]) for op in ops}
        if self._flat:
            types = {op_type for _, op_type in wanted}
            found = self.graph.record.index.find(self.graph, types)
        else:
            found = self._nodes_with_bodies()
        return [
            n for n in found if not getattr(n, "removed", False) and (domain_of(n), n.op) in wanted
        ]

    def nodes_of_other_domains(self) -> list[gs.Node]:
        """Nodes of all graphs whose operator names a domain."""
        found = holders(self.graph) if self._flat else self._nodes_with_bodies()
        return [n for n in found if n.domain]

    def _nodes_with_bodies(self) -> list[gs.Node]:
        """Nodes of all graphs, those of a body after the node that contains it."""
        found: list[gs.Node] = []
        stack = [iter(live_nodes(self.graph))]
        while stack:
            for node in stack[-1]:
                found.append(node)
                inner = bodies(node)
                if inner:
                    stack.extend(iter(live_nodes(body)) for body in reversed(inner))
                    break
            else:
                stack.pop()
        return found

    def is_output(self, tensor: gs.Tensor) -> bool:
        """Whether `tensor` leaves the main graph or a body."""
        return id(tensor) in self._outputs

    def fresh_name(self, base: str) -> str:
        """`base`, or `base` with a number: a name that no tensor of the model has."""
        if self._names is None:
            self._names = set()
            for graph in self.graphs():
                self._names.update(t.name for t in (*graph.inputs, *graph.outputs))
                self._names.update(c.name for c in graph.record.constants)
                for node in live_nodes(graph):
                    self._names.update(t.name for t in node.inputs)
                    self._names.update(t.name for t in node.outputs)
                self._note_mentioned(graph)
        return _fresh(base, self._names, self._counters)

    def _note_mentioned(self, graph: gs.Graph) -> None:
        """Reserve names without a tensor that have annotations: these would apply to a new one."""
        assert self._names is not None
        self._names.update(i.name for i in graph.record.stray_infos)
        self._names.update(a.tensor_name for a in graph.record.header.quantization_annotation)

    def fresh_node_name(self, base: str) -> str:
        """`base`, or `base` with a number: a name that no node of the model has."""
        if self._node_names is None:
            self._node_names = {node.name for node in self.nodes()}
        return _fresh(base, self._node_names, self._node_counters)

    def note_bodies(self, node: gs.Node) -> None:
        """Take note of the bodies in a new node."""
        if self._flat and bodies(node):
            self._flat = False

    def free_node_name(self, name: str) -> None:
        """Let a removed node's name be used again, by the node that replaces it."""
        if self._node_names is not None:
            self._node_names.discard(name)

    # -- keeping house ----------------------------------------------------------------------

    def refresh(self) -> None:
        """Take note of outputs and bodies; needed after these were assigned by hand."""
        self._flat = not any(map(bodies, holders(self.graph)))
        self._outputs = set()
        for graph in self.graphs():
            for tensor in graph.outputs:
                self._outputs.add(id(tensor))
                if graph is not self.graph and isinstance(tensor, gs.Constant):
                    tensor.body_output = True

    def sweep(self) -> int:
        """Drop removed nodes and nodes whose results are no longer read; returns their number."""
        return sweep(self)

    def forget_names(self) -> None:
        """Let the names of removed tensors be used again."""
        self._names = None

    def require_opset(self, version: int, why: str) -> None:
        """Raise the default opset to at least `version`, rewriting what changed its meaning."""
        if self.opset < version:
            HOOKS.raise_opset(self, version, why)

    def require_ir(self, version: int, why: str) -> None:
        """Raise the IR version to at least `version`."""
        if self.ir_version >= version:
            return
        self.upgrades.append(f"IR version {self.ir_version} -> {version}: {why}")
        if self.ir_version < 4 <= version:
            # Before 4 every initializer had to be an input as well; from 4 on that would let the
            # caller replace it, so that no runtime could treat it as a constant.
            inputs = self.graph.inputs
            inputs[:] = [t for t in inputs if not isinstance(t, gs.Constant)]
        self.header.ir_version = version

    def check(self) -> None:
        """Raise InvalidModelError on duplicate names, dangling inputs and cycles."""
        names = check_graph(self.graph)
        if self._flat and self._names is None and not self.made:
            self._names = set(names)
            self._note_mentioned(self.graph)

    # -- out --------------------------------------------------------------------------------

    @gc_paused()
    def clone(self) -> Model:
        """A copy whose graph can be edited freely; values of constants are shared."""
        tensors: dict[int, gs.Tensor] = {}
        twin = Model(
            clone_graph(self.graph, tensors),
            importer.header_of(self.header, set()),
            dict(self.opsets),
            list(self.functions),
        )
        twin.qparams = self.qparams.copy()
        twin.upgrades = list(self.upgrades)
        twin.export_notes = list(self.export_notes)
        twin.origin = self.origin
        twin.made = [clone_tensor(c, tensors) for c in self.made]
        twin._names = None if self._names is None else set(self._names)
        twin._counters = dict(self._counters)
        twin._node_names = None if self._node_names is None else set(self._node_names)
        twin._node_counters = dict(self._node_counters)
        return twin

    def alias(self) -> Model:
        """This model with its own functions and opsets; the graph is shared, for reading only."""
        twin = object.__new__(Model)
        twin.__dict__.update(self.__dict__)
        twin.opsets, twin.functions = dict(self.opsets), list(self.functions)
        twin.upgrades = list(self.upgrades)
        return twin

    @gc_paused()
    def to_proto(self, write: exporter.ConstantWriter = to_tensor_proto) -> ModelProto:
        """The protobuf; `write` makes the TensorProto of each constant."""
        model = HOOKS.before_writing(self)
        made = model._unlisted_constants()
        if made and model.ir_version < 4:
            if model is self:
                model = self.clone()
                made = model._unlisted_constants()
            model.require_ir(4, "initializers made by passes are not graph inputs")
        self.export_notes = model.upgrades[len(self.upgrades) :]
        proto = ModelProto()
        proto.CopyFrom(model.header)
        table = model._rows_without_nodes()
        if not table.is_empty:
            entry = proto.metadata_props.add()
            entry.key, entry.value = TABLE_KEY, table.dumps()
        opsets = dict(model.opsets)
        declared = {"" if d == "ai.onnx" else d for d in opsets}
        suspects = model.nodes_of_other_domains() if "" in declared else model.nodes()
        strangers = [node for node in suspects if (node.domain or "") not in declared]
        for domain in sorted({domain_of(n) for n in strangers if changed_domain(n)} - declared):
            opsets[domain] = 1
        proto.opset_import.extend(helper.make_opsetid(d, v) for d, v in opsets.items())
        proto.functions.extend(model.functions)
        exporter.export_graph(model.graph, proto.graph, write, made)
        return proto

    def _rows_without_nodes(self) -> QParamTable:
        """The rows to store as metadata: biases, or all rows if there are no quantizers."""
        if self.qparams.is_empty or not self.nodes(*QUANTIZERS):
            return self.qparams
        return QParamTable(self.qparams.of(Role.BIAS))

    def _unlisted_constants(self) -> list[gs.Constant]:
        """Constants in use that no graph declared at load: made by passes, in order."""
        outputs = self._outputs
        found = {id(c): c for c in self.made if exporter.is_read(c) or id(c) in outputs}
        for node in self.nodes():
            for tensor in node.inputs:
                # One that a graph declares, or that `edit.constant` made, has an owner.
                if isinstance(tensor, gs.Constant) and getattr(tensor, "owner", None) is None:
                    found[id(tensor)] = tensor
        return list(found.values())


def _fresh(base: str, taken: set[str], counters: dict[str, int]) -> str:
    """`base` or a numbered `base` that is not `taken`; counters keep repeated calls cheap."""
    name = base
    if name in taken or not name:
        number = counters.get(base, 0)
        while name in taken or not name:
            number += 1
            name = f"{base}_{number}"
        counters[base] = number
    taken.add(name)
    return name


# -- files ----------------------------------------------------------------------------------


@takes(proto=ModelProto, base_dir=(Path, None))
@gc_paused()
def from_proto(proto: ModelProto, base_dir: Path | None = None) -> Model:
    """A model over `proto`, which must not be changed afterwards (values are read from it)."""
    if not proto.HasField("graph") or not (proto.ir_version or proto.opset_import):
        raise LoadError(
            "this protobuf is not an ONNX model (no graph or no version)",
            fix="give a file written by an ONNX exporter",
        )
    check_functions(proto.functions, proto.graph.node)
    header = importer.header_of(proto, _MODEL_BODY)
    graph = importer.import_graph(proto.graph, base_dir, overridable=proto.ir_version >= 4)
    importer.mark_unread(graph)
    model = Model(graph, header, importer.opsets_of(proto), list(proto.functions))
    tables = [at for at, entry in enumerate(header.metadata_props) if entry.key == TABLE_KEY]
    if len(tables) > 1:
        raise InvalidModelError(
            f"the metadata has {len(tables)} quantization tables ('{TABLE_KEY}')",
            fix="keep one of them",
        )
    for index in tables:
        model.qparams = QParamTable.loads(header.metadata_props[index].value)
        del header.metadata_props[index]
    HOOKS.after_reading(model)
    model.check()
    HOOKS.check_nodes(model)
    return model


def new_model(name: str, opset: int = 21, ir_version: int = 10) -> Model:
    """An empty model to build a graph in."""
    proto = ModelProto(ir_version=ir_version, graph=GraphProto(name=name))
    proto.opset_import.append(helper.make_opsetid("", opset))
    return from_proto(proto)


@takes(path=PATH)
def load(path: str | Path) -> Model:
    """Read an ONNX file. External data stays on disk until it is needed."""
    path = Path(path)
    try:
        content = model_files.read_bytes(path)
        proto = model_files.parse_model(content)
        model = from_proto(proto, path.parent)
    except OnnxqError as error:
        raise type(error)(f"{path}: {error.what}", fix=error.fix) from error
    model.origin = Origin.of(path, content, proto)
    return model


@takes(model=Model, path=PATH, external_data=(*FLAG, None))
def save(model: Model, path: str | Path, *, external_data: bool | None = None) -> list[Path]:
    """Write an ONNX file and, if needed, its data file; returns the paths of both.

    External data is used on request, if the model came with some, and if a single file would exceed
    protobuf's 2 GiB. It goes to `<name>.data`, or to `<name>.1.data` if that file belongs to
    another model. Both files are written next to the target and moved into place at the end, so a
    failure leaves the old files intact.
    """
    path = Path(path)
    external_data = _is_external(model) if external_data is None else external_data
    return model_files.write_model(model.to_proto, path, external_data, model.origin)


def stage(model: Model, to: FileSet, name: str) -> list[str]:
    """Add a model to a set of files that are written together; returns the names it takes."""
    return model_files.stage_model(to, model.to_proto, name, _is_external(model), model.origin)


def _is_external(model: Model) -> bool:
    constants = [c for g in model.graphs() for c in g.record.constants] + model.made
    attributes = (v for n in model.nodes() for v in n.attrs.values())
    constants += [v for v in attributes if isinstance(v, gs.Constant)]
    return model_files.needs_external_data(
        constants, came_with_data=bool(model.origin and model.origin.data)
    )


__all__ = [
    *("MAX_IR", "MAX_OPSET", "Model", "domain_of", "from_proto", "load", "new_model", "save"),
    "stage",
]
