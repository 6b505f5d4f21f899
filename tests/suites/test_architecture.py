"""Rules on the sources themselves: who imports whom, what is banned, what must be there."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnxq import discovery
from onnxq.analysis.placement_walk import PlacementWalk
from onnxq.backend import find_backend

ROOT = Path(__file__).parents[2]
MAP = ROOT / "CONTRIBUTING.md"
PASS_FILES = sorted((ROOT / "passes").glob("*.py"))
SOURCES = [*sorted((ROOT / "onnxq").rglob("*.py")), *PASS_FILES]
EVERYTHING = [*SOURCES, *sorted((ROOT / "torch_bridge").rglob("*.py"))]
PASSES = [path for path in PASS_FILES if path.stem not in ("__init__", "phases")]

THROUGH_FUSION = "held to onnxruntime's own graph, all together: ort_fusion/test_prediction.py"
COVERED_ELSEWHERE = {
    "onnxq/__main__.py": "one line: tests/onnxq/cli/test_commands.py",
    "onnxq/cli/__main__.py": "one line: tests/onnxq/cli/test_commands.py",
    "onnxq/cli/doctor.py": "tests/onnxq/environment/test_checkup.py",
    "onnxq/cli/entry.py": "how every command starts and ends: tests/onnxq/cli/test_commands.py",
    "onnxq/cli/options.py": "options and output of commands: tests/onnxq/cli/test_commands.py",
    "onnxq/graph/cloning.py": "one half of Model's work: tests/onnxq/graph/test_model.py",
    "onnxq/graph/constants.py": "tests/onnxq/test_edit.py",
    "onnxq/graph/hooks.py": "without code: tests/onnxq/graph/test_model.py",
    "onnxq/graph/pickling.py": "tests/onnxq/graph/test_copies.py",
    "onnxq/graph/shown_model.py": "tests/suites/test_public_objects.py",
    "onnxq/lint/rule.py": "dataclasses without code: tests/onnxq/workflows/test_lint_model.py",
    "onnxq/operators/fused_operators.py": "a table: tests/onnxq/ort_fusion/test_prediction.py",
    "onnxq/parsing/table_rows.py": "tests/onnxq/quant/test_qparams.py",
    "onnxq/quant/qparam_table.py": "tests/onnxq/quant/test_qparams.py",
    "onnxq/quant/qtypes.py": "tests/onnxq/quant/test_qparams.py",
    "onnxq/reading.py": "what every reader's test and tests/onnxq/workflows/test_convert.py call",
    "onnxq/storage/external_data.py": "tests/onnxq/storage/test_tensors.py",
    "onnxq/views/bench.py": "tests/onnxq/cli/test_bench.py",
    "onnxq/views/model.py": "tests/suites/test_public_objects.py",
    "onnxq/views/prepared.py": "tests/torch_bridge/capture/test_report.py",
    "onnxq/views/quantization.py": "tests/onnxq/cli/test_quantize.py",
    "onnxq/views/recipe.py": "tests/suites/test_public_objects.py",
    "onnxq/views/statistics.py": "tests/onnxq/cli/test_calibrate.py",
    **{
        f"onnxq/ort_fusion/{name}.py": THROUGH_FUSION
        for name in ("clips", "pairs", "reasons", "refusals")
    },
}
"""Modules without a test file of their own, and why."""

MOST_LINES = 400
MOST_MODULES = 20
LARGE_ROOMS = {"onnxq/backends", "onnxq/formats", "passes"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def each(paths: list[Path], check: Callable[[Path], object]) -> dict[str, object]:
    """What `check` finds in each file, without those where it finds nothing."""
    return {relative(path): found for path in paths if (found := check(path))}


# -- imports ----------------------------------------------------------------------------------


def imports(module: ast.AST, *, types: bool = False) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, in functions too; for type checkers if asked."""
    for node in ast.iter_child_nodes(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif types or not is_type_check(node):
            yield from imports(node, types=types)


def is_type_check(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def at_import_time(module: ast.AST) -> ast.Module:
    """The module without functions: what runs when it is imported."""

    class Cut(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    return Cut().visit(ast.parse(ast.unparse(module)))


def offences(module: ast.AST, *banned: str, types: bool = True) -> list[str]:
    """Imports of one of the banned packages or of something in them."""
    return [
        f"line {line} imports {name}"
        for line, name in imports(module, types=types)
        if any(f"{name}.".startswith(f"{package}.") for package in banned)
    ]


@pytest.mark.parametrize(
    ("source", "always", "running", "top"),
    [
        ("import torch", 1, 1, 1),
        ("import torch.nn as nn, os", 1, 1, 1),
        ("from torch import nn", 1, 1, 1),
        ("from torch.nn import functional", 1, 1, 1),
        ("import torchvision", 0, 0, 0),
        ("def f():\n    import torch", 1, 1, 0),
        ("class A:\n    import torch", 1, 1, 1),
        ("try:\n    import torch\nexcept ImportError:\n    pass", 1, 1, 1),
        ("if TYPE_CHECKING:\n    import torch", 1, 0, 0),
        ("if 1:\n    import torch", 1, 1, 1),
    ],
)
def test_import_scan(source: str, always: int, running: int, top: int) -> None:
    module = ast.parse(source)
    assert len(offences(module, "torch")) == always
    assert len(offences(module, "torch", types=False)) == running
    assert len(offences(at_import_time(module), "torch", types=False)) == top


# -- rooms ------------------------------------------------------------------------------------


def rooms() -> dict[str, int]:
    """Every room of the map (a package, or a module of its own) and the line it is in."""
    found: dict[str, int] = {}
    for number, line in enumerate(MAP.read_text(encoding="utf-8").splitlines()):
        row = re.match(r"\| ((?:`[\w/.]+`(?:, )?)+) \| ", line)
        if row is None:
            continue
        folder = ""
        for name in re.findall(r"`([\w/.]+)`", row[1]):
            folder, name = (name.rpartition("/")[0], name) if "/" in name else (folder, name)
            path = name if "/" in name or not folder else f"{folder}/{name}"
            found[path.removesuffix(".py").replace("/", ".")] = number
    return found


ROOMS = rooms()
MODULES = {
    relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
    for path in EVERYTHING
}


def room_of(module: str) -> str | None:
    """The room that a module lies in."""
    while module and module not in ROOMS:
        module = module.rpartition(".")[0]
    return module or None


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """The modules of this project that a file imports, wherever in the file, types aside."""
    for line, name in imports(tree(path)):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        if name:
            yield line, name


def wrong_way(module: str, path: Path) -> list[str]:
    own = room_of(module)
    if own is None:  # the packages themselves, above all rooms
        return []
    return [
        f"line {line} imports {name}, which lies below in the map"
        for line, name in imported_modules(path)
        if room_of(name) is not None and ROOMS[room_of(name)] > ROOMS[own]
    ]


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, or none."""
    done: set[str] = set()
    for root in edges:
        path: list[str] = []
        stack = [(root, iter(sorted(edges[root])))]
        while stack:
            module, rest = stack[-1]
            if module not in path:
                path.append(module)
            following = next((m for m in rest if m not in done and m in edges), None)
            if following is None:
                done.add(module)
                path.remove(module)
                stack.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            else:
                stack.append((following, iter(sorted(edges[following]))))
    return []


def test_every_module_lies_in_a_room_of_the_map() -> None:
    outside = {"onnxq", "onnxq.__main__", "torch_bridge"}
    assert {m for m in MODULES if room_of(m) is None} == outside
    assert {room for room in ROOMS if room not in MODULES} == set()


def test_rooms_are_not_crowded() -> None:
    counts = {
        relative(path): len([*path.glob("[!_]*.py")])
        for path in {source.parent for source in EVERYTHING}
    }
    crowded = {room for room, count in counts.items() if count > MOST_MODULES}
    assert crowded <= LARGE_ROOMS


def test_imports_go_up_the_map_only() -> None:
    assert {m: found for m, path in MODULES.items() if (found := wrong_way(m, path))} == {}


def test_no_module_imports_itself_in_a_circle() -> None:
    edges = {m: {name for _, name in imported_modules(p)} - {m} for m, p in MODULES.items()}
    edges = {m: {n for n in found if n != m.rpartition(".")[0]} for m, found in edges.items()}
    assert cycle(edges) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("onnxq.quant.qparams", "from onnxq.graph import Model"),
        ("onnxq.graph.model", "def f():\n    from onnxq.canonical import quantizers"),
        ("onnxq.dialects.qonnx", "import passes.read_qonnx"),
        ("passes.to_qdq", "from onnxq.workflows.convert import convert"),
        ("onnxq.proof.verify", "from onnxq.cli.paths import path_given"),
        ("torch_bridge.arithmetic.grid", "import torch_bridge.nn.qat"),
        ("torch_bridge.nn.qat", "class A:\n    from torch_bridge import deploy"),
    ],
)
def test_a_wrong_import_is_seen(module: str, source: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(source, encoding="utf-8")
    assert len(wrong_way(module, path)) == 1


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]),
    ],
)
def test_a_circle_is_seen(edges: dict[str, set[str]], found: list[str]) -> None:
    assert cycle(edges) == found


def test_deployment_never_imports_training() -> None:
    banned = ("torch", "torch_bridge", "tests", "benchmarks")
    assert each(SOURCES, lambda path: offences(tree(path), *banned)) == {}


def test_onnxruntime_is_imported_only_where_it_is_used() -> None:
    assert each(SOURCES, lambda p: offences(at_import_time(tree(p)), "onnxruntime")) == {}


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
        "import onnxq.discovery as d, onnxq.backend as b; d.passes(); b.backends()",
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


def test_passes_use_the_verbs_of_edit() -> None:
    assert each(PASS_FILES, lambda path: list(banned_calls(tree(path)))) == {}


def prints(path: Path) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]


def test_only_the_command_line_prints() -> None:
    assert each(EVERYTHING, prints).keys() <= {"onnxq/cli/commands.py"}


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


WALK = {name for name in vars(PlacementWalk) if not name.startswith("_")}
WALKS = dict.fromkeys(
    ("onnxq/analysis/quantizer_places.py", "torch_bridge/insertion/rules.py"), WALK
)
"""Methods that are described once, on PlacementWalk; those of passes are on Pass."""


def undocumented(path: Path) -> list[str]:
    module = tree(path)
    inherited = {"run"} if path in PASSES else WALKS.get(relative(path), set())
    missing = [] if ast.get_docstring(module) else ["the module"]
    return missing + [
        name
        for name, node in public(module, "")
        if not ast.get_docstring(node) and name.rpartition(".")[2] not in inherited
    ]


def test_every_public_name_has_a_docstring() -> None:
    assert each(EVERYTHING, undocumented) == {}


def test_one_file_is_one_pass_of_that_name() -> None:
    for path in PASSES:
        found = {
            name: step
            for name, step in discovery.passes().items()
            if isinstance(step, type) and step.__module__ == f"passes.{path.stem}"
        }
        assert list(found) == [path.stem.replace("_", "-")]
        (step,) = found.values()
        assert step.__name__.lower() == path.stem.replace("_", "")
        assert step.summary().endswith("."), f"{step}: the docstring starts with one sentence"


def test_every_pass_shipped_is_in_such_a_file() -> None:
    shipped = {n for n, p in discovery.passes().items() if p.__module__.startswith("passes.")}
    assert shipped == {path.stem.replace("_", "-") for path in PASSES}


def test_one_file_is_one_backend_of_that_name() -> None:
    for path in (ROOT / "onnxq/backends").glob("[!_]*.py"):
        found = find_backend(path.stem.replace("_", "-"))
        assert found is sys.modules[f"onnxq.backends.{path.stem}"].BACKEND


def mirror(path: Path) -> Path:
    """The test file of a source file."""
    inside = path.relative_to(ROOT)
    return ROOT / "tests" / inside.parent / f"test_{inside.name}"


def test_every_module_has_a_test_file() -> None:
    for path in SOURCES:
        if path.stem in ("__init__", "phases"):
            continue
        wanted = mirror(path)
        if relative(path) in COVERED_ELSEWHERE:
            assert not wanted.exists(), f"take {relative(path)} off the list of exceptions"
            continue
        assert wanted.is_file(), f"{relative(path)} has no test file"
        assert "\ndef test_" in wanted.read_text(encoding="utf-8"), f"{relative(wanted)}: no test"


def test_exceptions_exist() -> None:
    assert set(COVERED_ELSEWHERE) <= set(map(relative, SOURCES))


def test_files_are_short() -> None:
    long = each(EVERYTHING, lambda path: path.read_text(encoding="utf-8").count("\n") > MOST_LINES)
    assert long == {}
