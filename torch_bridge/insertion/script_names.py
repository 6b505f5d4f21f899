"""The names that torch's TorchScript exporter gives to what a model calls.

    /body/body.0/conv/Conv      the operator Conv of the module 'body.0.conv'
    /body/body.0/Add            the only sum in the code of 'body.0'

The exporter writes the modules that are being called, the outermost first. A child of a Sequential
or of a list goes by its number behind the name of its parent, and a list is not called itself.
Recipes that were made from such files select operators by these names. If a module calls the same
function twice, the exporter numbers its operators, and which is which cannot be told from a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torch import fx, nn

from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.insertion.op_kinds import kind_of, module_kind

_OPERATORS = {"Linear": ("Gemm", "MatMul"), "Embedding": ("Gather",), "Swish": ("Mul",)}
"""The operators that a kind is exported as, if their name is not that of the kind."""


def script_names(
    modules: Mapping[str, nn.Module], graph: fx.Graph | None
) -> dict[str, tuple[str, ...]]:
    """The names of modules, by path, and of function calls, by the name of their node."""
    found: dict[str, tuple[str, ...]] = {}
    scopes = {"": ""}
    for path, module in modules.items():  # containers first
        if path:
            scopes[path] = _scope(path, modules, scopes)
        kind = module_kind(module)
        if path and kind is not None:
            found[path] = _exported(scopes[path], kind)
    calls = [n for n in graph.nodes if n.op in ("call_function", "call_method")] if graph else []
    known = {node: (node.meta.get(OWNER, ""), kind_of(node, modules)) for node in calls}
    times = Counter(known.values())
    for node, (owner, kind) in known.items():
        if kind is not None and owner in scopes and times[owner, kind] == 1:
            found[node.name] = _exported(scopes[owner], kind)
    return found


def _scope(path: str, modules: Mapping[str, nn.Module], scopes: Mapping[str, str]) -> str:
    parent, _, name = path.rpartition(".")
    around, container = scopes[parent], modules[parent]
    if not parent or not isinstance(container, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return f"{around}/{name}"
    whole, _, last = around.rpartition("/")
    is_called = isinstance(container, nn.Sequential)
    return f"{around}/{last}.{name}" if is_called else f"{whole}/{last}.{name}"


def _exported(scope: str, kind: str) -> tuple[str, ...]:
    return tuple(f"{scope}/{operator}" for operator in _OPERATORS.get(kind, (kind,)))
