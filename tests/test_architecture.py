"""Rules on the sources themselves: who imports whom, what is banned, what must be there."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxq import discovery

ROOT = Path(__file__).parent.parent
CORE = sorted((ROOT / "onnxq").rglob("*.py"))
PASS_FILES = sorted((ROOT / "passes").glob("*.py"))
SOURCES = [*CORE, *PASS_FILES]
PASSES = [path for path in PASS_FILES if path.stem not in ("__init__", "phases")]

THROUGH_GRAPH = "one half of graph.py's work: tests/onnxq/test_graph.py, tests/test_identity.py"
COVERED_ELSEWHERE = {
    "onnxq/cloning.py": THROUGH_GRAPH,
    "onnxq/__main__.py": "one line: tests/onnxq/test_cli.py",
    "onnxq/constants.py": "tests/onnxq/test_edit.py",
    "onnxq/qtype.py": "tests/onnxq/test_qparams.py",
    "onnxq/qparam_table.py": "tests/onnxq/test_qparams.py",
    "onnxq/table_rows.py": "tests/onnxq/test_qparams.py",
    "onnxq/external_data.py": "tests/onnxq/test_tensors.py",
    "onnxq/cli_options.py": "options and output of commands: tests/onnxq/test_cli.py",
    "onnxq/lint_rule.py": "dataclasses without code: tests/onnxq/test_lint.py",
    **dict.fromkeys(
        (
            *("onnxq/ort_rewrites/clips.py", "onnxq/ort_rewrites/joining.py"),
            *("onnxq/ort_rewrites/levels.py", "onnxq/ort_rewrites/local_rules.py"),
            *("onnxq/ort_rewrites/pairs.py", "onnxq/ort_rewrites/propagation.py"),
            "onnxq/ort_rewrites/weights.py",
        ),
        "held to onnxruntime's own graph, all together: tests/onnxq/test_ort_fusion.py",
    ),
}
"""Modules without a test file of their own, and why."""

MOST_LINES = 400


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(nodes: Iterator[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported by these nodes."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def at_import_time(module: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not those in functions or type checks."""
    for node in ast.iter_child_nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from at_import_time(node)


def offences(module: ast.Module, *banned: str, top_level_only: bool = False) -> list[str]:
    """Imports of one of the banned packages or of something in them."""
    nodes = at_import_time(module) if top_level_only else ast.walk(module)
    return [
        f"line {line} imports {name}"
        for line, name in imports(nodes)
        if any(f"{name}.".startswith(f"{package}.") for package in banned)
    ]


# -- the rules above see what they are meant to see -------------------------------------------


@pytest.mark.parametrize(
    ("source", "always", "top"),
    [
        ("import torch", 1, 1),
        ("import torch.nn as nn, os", 1, 1),
        ("from torch import nn", 1, 1),
        ("from torch.nn import functional", 1, 1),
        ("import torchvision", 0, 0),
        ("def f():\n    import torch", 1, 0),
        ("class A:\n    import torch", 1, 1),
        ("try:\n    import torch\nexcept ImportError:\n    pass", 1, 1),
        ("if TYPE_CHECKING:\n    import torch", 1, 0),
        ("if 1:\n    import torch", 1, 1),
    ],
)
def test_import_scan(source: str, always: int, top: int) -> None:
    module = ast.parse(source)
    assert len(offences(module, "torch")) == always
    assert len(offences(module, "torch", top_level_only=True)) == top


# -- who imports whom -------------------------------------------------------------------------


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_core_imports_neither_passes_nor_training(path: Path) -> None:
    banned = ["torch", "torch_bridge", "tests", "benchmarks"]
    if path.parent.name != "backends":  # a backend is put together from passes
        banned.append("passes")
    assert offences(tree(path), *banned) == []


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_only_what_serves_the_user_imports_backends(path: Path) -> None:
    if path.parent.name != "backends":  # found by discovery, by name
        assert offences(tree(path), "onnxq.backends") == []
    if path.stem != "__main__":
        assert offences(tree(path), "onnxq.cli") == []


@pytest.mark.parametrize("path", PASS_FILES, ids=relative)
def test_passes_import_only_the_core(path: Path) -> None:
    banned = ("torch", "torch_bridge", "onnxq.backends", "onnxq.backend", "onnxq.cli", "tests")
    assert offences(tree(path), *banned) == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_onnxruntime_is_imported_only_where_it_is_used(path: Path) -> None:
    assert offences(tree(path), "onnxruntime", top_level_only=True) == []


def modules_after(statement: str) -> set[str]:
    """Names of the top-level packages that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps([*sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize(
    "statement",
    [
        "import onnxq",
        "import onnxq.cli",
        "import onnxq.discovery as d; d.passes(); d.backends()",
    ],
)
def test_importing_loads_neither_torch_nor_onnxruntime(statement: str) -> None:
    loaded = modules_after(statement)
    assert "onnx" in loaded
    assert loaded.isdisjoint({"torch", "torch_bridge", "onnxruntime"})


def test_importing_onnxq_loads_no_pass() -> None:
    assert "passes" not in modules_after("import onnxq")


# -- what is banned ---------------------------------------------------------------------------

BANNED_METHODS = {
    "import_onnx": "drops metadata; use onnxq.load",
    "export_onnx": "drops metadata; use Model.to_proto",
    "toposort": "the exporter sorts",
    "cleanup": "drops unused inputs and optional outputs; the pipeline sweeps",
    "layer": "makes names that clash; use edit.new_node",
    "fold_constants": "graphsurgeon's own folding runs the whole graph; use the pass",
    "copy": "graphsurgeon's copies share tensors; use Model.clone or edit",
}
"""Methods of graphsurgeon that passes do not call, and what they do instead."""

LISTS_OF_GRAPHSURGEON = {"nodes", "inputs", "outputs"}
LIST_METHODS = {"remove", "index", "count"}
"""These compare by value, where two tensors or nodes that look alike are equal."""


def banned_calls(module: ast.AST) -> Iterator[str]:
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, owner = node.func.attr, node.func.value
        whose = ast.unparse(owner)
        last = whose.rpartition(".")[2]
        if name in BANNED_METHODS and (last in ("gs", "graph", "model", "body", "owner")):
            yield f"line {node.lineno}: {whose}.{name}(): {BANNED_METHODS[name]}"
        if name in LIST_METHODS and last in LISTS_OF_GRAPHSURGEON:
            yield f"line {node.lineno}: {whose}.{name}() compares by value; use the verbs of edit"


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("gs.import_onnx(proto)", True),
        ("model.graph.cleanup().toposort()", True),
        ("graph.toposort()", True),
        ("model.graph.layer(op='Relu')", True),
        ("node.inputs.remove(tensor)", True),
        ("model.graph.nodes.remove(node)", True),
        ("tensor.outputs.index(node)", True),
        ("array.copy()", False),
        ("remove(node, model)", False),
        ("names.remove(name)", False),
    ],
)
def test_call_scan(source: str, caught: bool) -> None:
    assert bool(list(banned_calls(ast.parse(source)))) is caught


@pytest.mark.parametrize("path", PASS_FILES, ids=relative)
def test_passes_use_the_verbs_of_edit(path: Path) -> None:
    assert list(banned_calls(tree(path))) == []


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_only_the_command_line_prints(path: Path) -> None:
    found = [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]
    assert found == [] or relative(path) == "onnxq/cli.py"


# -- what must be there -----------------------------------------------------------------------

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(owner: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, Documented]]:
    """The public classes, functions and methods; properties' setters follow their getters."""
    for node in owner.body:
        if not isinstance(node, Documented) or node.name.startswith("_"):
            continue
        if not any(ast.unparse(d).endswith((".setter", "overload")) for d in node.decorator_list):
            yield f"{prefix}{node.name}", node
        if isinstance(node, ast.ClassDef):
            yield from public(node, f"{prefix}{node.name}.")


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_public_name_has_a_docstring(path: Path) -> None:
    module = tree(path)
    assert ast.get_docstring(module), "the module has none"
    inherited = {"run"} if path in PASSES else set()  # described once, on Pass
    missing = [
        name
        for name, node in public(module, "")
        if not ast.get_docstring(node) and name.rpartition(".")[2] not in inherited
    ]
    assert missing == []


@pytest.mark.parametrize("path", PASSES, ids=relative)
def test_one_file_is_one_pass_of_that_name(path: Path) -> None:
    found = {
        name: step
        for name, step in discovery.passes().items()
        if isinstance(step, type) and step.__module__ == f"passes.{path.stem}"
    }
    assert list(found) == [path.stem.replace("_", "-")]
    (step,) = found.values()
    assert step.__name__.lower() == path.stem.replace("_", "")
    assert step.summary().endswith("."), "the docstring starts with one sentence on one line"


def test_every_pass_shipped_is_in_such_a_file() -> None:
    shipped = {n for n, p in discovery.passes().items() if p.__module__.startswith("passes.")}
    assert shipped == {path.stem.replace("_", "-") for path in PASSES}


@pytest.mark.parametrize("path", sorted((ROOT / "onnxq/backends").glob("[!_]*.py")), ids=relative)
def test_one_file_is_one_backend_of_that_name(path: Path) -> None:
    found = discovery.find_backend(path.stem.replace("_", "-"))
    assert found is sys.modules[f"onnxq.backends.{path.stem}"].BACKEND


def mirror(path: Path) -> Path:
    """The test file of a source file."""
    inside = path.relative_to(ROOT)
    return ROOT / "tests" / inside.parent / f"test_{inside.name}"


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.stem not in ("__init__", "phases")], ids=relative
)
def test_every_module_has_a_test_file(path: Path) -> None:
    wanted = mirror(path)
    if relative(path) in COVERED_ELSEWHERE:
        assert not wanted.exists(), f"take {relative(path)} off the list of exceptions"
        return
    assert wanted.is_file()
    assert "\ndef test_" in wanted.read_text(encoding="utf-8"), f"{relative(wanted)} has no test"


def test_exceptions_exist() -> None:
    assert set(COVERED_ELSEWHERE) <= {relative(path) for path in CORE}


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
