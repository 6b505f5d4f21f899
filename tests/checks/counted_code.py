"""A second copy of onnxq whose every step is counted, loops inside C included.

Lines executed do not tell what a line costs: `x in some_list`, `links.remove(node)`, `a + b` or
`set(names)` walk through all elements in C. So the packages are imported once more, from a syntax
tree in which every loop, call, operator, slice and `in` reports how many elements it looks at. The
count does not depend on the machine or its load, so a test can say that work grows linearly.
numpy's own loops are counted by the size of the arrays; protobuf's by the size of the message.

Copy and original live side by side: `counted()` puts the copy into `sys.modules` while it is open.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.abc
import importlib.machinery
import operator
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, ModuleType
from typing import Any, cast

import numpy as np
from google.protobuf.message import Message

COUNTED = ("onnxq", "passes", "onnx_graphsurgeon")
"""The packages that are counted: ours, and the one whose lists hold our graph."""

_RECURSION = 10_000  # every call of counted code takes two frames


class _Work:
    """The number of elements looked at, by line of code."""

    def __init__(self) -> None:
        self.places: Counter[str] | None = None

    def add(self, number: int) -> None:
        if self.places is not None:
            frame = sys._getframe(2)
            self.places[f"{frame.f_code.co_filename}:{frame.f_lineno}"] += number


_work = _Work()

# -- what things cost ----------------------------------------------------------------------------

_SEQUENCES = (list, tuple, deque, str, bytes, bytearray)
_TABLES = (dict, set, frozenset)
_WALKING = (list, tuple, set, frozenset, dict, sorted, sum, min, max, any, all, Counter, deque)
_LAZY = (map, filter, zip, enumerate)
_OWN_WALK = {  # methods that look through all of what they belong to
    *("remove", "index", "count", "insert", "copy", "sort", "reverse", "union", "difference"),
    *("intersection", "symmetric_difference", "__contains__", "__delitem__", "__eq__", "clear"),
}
_ARGUMENT_WALK = {
    *("extend", "update", "join", "union", "difference", "fromkeys", "extendleft"),
    *("difference_update", "intersection_update"),
}
_MESSAGE_WALK = {"CopyFrom", "MergeFrom", "SerializeToString", "ParseFromString", "ByteSize"}


def _length(value: object) -> int:
    """How many elements there are to look at, where walking through `value` is one loop in C."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, Message):
        return value.ByteSize() // 64
    try:
        return len(value)  # type: ignore[arg-type]
    except TypeError:
        return 0


def _cost(function: Any, arguments: tuple[Any, ...]) -> int:
    if function in _WALKING if isinstance(function, type) else function in _WALKING[4:]:
        return sum(_length(a) for a in arguments[:1])
    name = getattr(function, "__name__", "")
    if isinstance(function, np.ufunc) or getattr(function, "__module__", None) == "numpy":
        return sum(a.size for a in arguments if isinstance(a, np.ndarray))
    owner = getattr(function, "__self__", None)
    if owner is None and getattr(function, "__objclass__", None) in (*_SEQUENCES, *_TABLES):
        owner, arguments = arguments[0], arguments[1:]
    if isinstance(owner, np.ndarray):
        return owner.size
    if name in _MESSAGE_WALK and isinstance(owner, Message):
        return _length(owner) + sum(_length(a) for a in arguments)
    found = 0
    if name in _OWN_WALK and isinstance(owner, (*_SEQUENCES, *_TABLES)):
        if not (name == "__contains__" and isinstance(owner, _TABLES)):
            found += len(owner)
    elif name == "pop" and arguments and isinstance(owner, (list, deque)):
        found += len(owner)
    if name in _ARGUMENT_WALK:
        found += sum(_length(a) for a in arguments)
    return found


# -- what the counted code calls -----------------------------------------------------------------


def _each(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _work.add(1)
        yield value


def _tick() -> None:
    _work.add(1)


def _call(function: Any, /, *arguments: Any, **named: Any) -> Any:
    if function in _LAZY if isinstance(function, type) else False:
        first = () if function in (zip, enumerate) else arguments[:1]
        arguments = (*first, *(_each(a) for a in arguments[len(first) :]))
    _work.add(1 + _cost(function, arguments))
    return function(*arguments, **named)


def _is_in(item: Any, values: Any) -> bool:
    _work.add(1 if isinstance(values, (*_TABLES, range)) else 1 + _length(values))
    return item in values


def _binary(name: str, left: Any, right: Any) -> Any:
    walked = (*_SEQUENCES, *_TABLES)
    if isinstance(left, walked) and isinstance(right, walked):
        _work.add(1 + (min(len(left), len(right)) if name == "and_" else len(left) + len(right)))
    elif isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        _work.add(1 + max(np.size(left), np.size(right)))
    return getattr(operator, name)(left, right)


def _in_place(name: str, left: Any, right: Any) -> Any:
    if isinstance(left, (list, set, dict)):
        _work.add(1 + _length(right))
    elif isinstance(left, (*_SEQUENCES, frozenset)):
        _work.add(1 + len(left) + len(right))
    return getattr(operator, name)(left, right)


def _equal(left: Any, right: Any, wanted: bool) -> Any:
    if isinstance(left, (*_SEQUENCES, *_TABLES)) and isinstance(right, type(left)):
        _work.add(1 + (len(left) if len(left) == len(right) else 0))
    return left == right if wanted else left != right


def _slice(values: Any, key: Any) -> Any:
    found = values[key]
    _work.add(1 + (0 if isinstance(values, np.ndarray) else _length(found)))
    return found


def _delete(values: Any, key: Any) -> None:
    _work.add(1 + (_length(values) if not isinstance(values, _TABLES) else 0))
    del values[key]


def _spread(values: Any) -> Any:
    _work.add(1 + _length(values))
    return values


_HOOKS = {
    "_work_each": _each,
    "_work_tick": _tick,
    "_work_call": _call,
    "_work_in": _is_in,
    "_work_binary": _binary,
    "_work_in_place": _in_place,
    "_work_equal": _equal,
    "_work_slice": _slice,
    "_work_delete": _delete,
    "_work_spread": _spread,
}

# -- the counted syntax tree ---------------------------------------------------------------------

_OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.BitOr: "or_", ast.BitAnd: "and_", ast.Mult: "mul"}
_FRAME_BOUND = {"super", "locals", "globals", "vars", "dir", "eval", "exec"}


def _hook(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(f"_work_{name}", ast.Load()), list(arguments), [])


class _Counting(ast.NodeTransformer):
    """Puts a hook around whatever walks through elements."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in _FRAME_BOUND:
            return node
        return ast.Call(ast.Name("_work_call", ast.Load()), [node.func, *node.args], node.keywords)

    def visit_For(self, node: ast.For) -> ast.stmt:
        self.generic_visit(node)
        node.iter = _hook("each", node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.iter = _hook("each", node.iter)
        return node

    def visit_While(self, node: ast.While) -> ast.stmt:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(_hook("tick")))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.generic_visit(node)
        first = 1 if ast.get_docstring(node) is not None else 0
        node.body.insert(first, ast.Expr(_hook("tick")))
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = _hook("each", node.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        pairs = zip(node.keys, node.values, strict=True)
        node.values = [_hook("spread", v) if k is None else v for k, v in pairs]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1:
            return node
        kind, other = node.ops[0], node.comparators[0]
        if isinstance(kind, ast.In):
            return _hook("in", node.left, other)
        if isinstance(kind, ast.NotIn):
            return ast.UnaryOp(ast.Not(), _hook("in", node.left, other))
        if isinstance(kind, (ast.Eq, ast.NotEq)):
            return _hook("equal", node.left, other, ast.Constant(isinstance(kind, ast.Eq)))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = _OPERATORS.get(type(node.op))
        if name is None:
            return node
        return _hook("binary", ast.Constant(name), node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        name = _OPERATORS.get(type(node.op))
        if name is None or not isinstance(node.target, ast.Name):
            return node
        read = ast.Name(node.target.id, ast.Load())
        name = f"i{name.rstrip('_')}"
        return ast.Assign([node.target], _hook("in_place", ast.Constant(name), read, node.value))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            key = [ast.Constant(None) if end is None else end for end in ends]
            return _hook("slice", node.value, ast.Call(ast.Name("slice", ast.Load()), key, []))
        return node

    def visit_Delete(self, node: ast.Delete) -> ast.stmt:
        self.generic_visit(node)
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Subscript):
            return node
        if isinstance(target.slice, ast.Slice):
            return node
        return ast.Expr(_hook("delete", target.value, target.slice))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return _compiled(path, bytes(self.get_data(path)))


@functools.cache
def _compiled(path: str, source: bytes) -> CodeType:
    tree = _Counting().visit(ast.parse(source, path))
    return cast(CodeType, compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True))


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not _is_counted(name):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def _is_counted(module: str) -> bool:
    return module.partition(".")[0] in COUNTED


# -- the copy ------------------------------------------------------------------------------------

_copy: dict[str, ModuleType] = {}
_finder = _Finder()


@contextmanager
def counted() -> Iterator[None]:
    """While open, `import onnxq` and imports inside it mean the counted copy."""
    for name, hook in _HOOKS.items():
        setattr(builtins, name, hook)
    original = _swapped(_copy)
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(max(depth, _RECURSION))
    sys.meta_path.insert(0, _finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_finder)
        sys.setrecursionlimit(depth)
        _copy.update(_swapped(original))


def _swapped(modules: Mapping[str, ModuleType]) -> dict[str, ModuleType]:
    """Put these modules where the present ones of the same packages are; returns those."""
    present = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_counted(name)}
    sys.modules.update(modules)
    return present


def places(call: Callable[[], object]) -> Counter[str]:
    """How many elements `call` looks at, by file and line of the counted code."""
    _work.places = Counter()
    try:
        call()
        return _work.places
    finally:
        _work.places = None


def assert_every_line_linear(prepare: Callable[[int], Callable[[], object]], size: int) -> None:
    """Work for four times the size is at most 4.6 times as much, and on no line quadratic.

    `prepare(size)` makes the input and returns the call to be counted. A line whose work grows
    with the square does sixteen times as much. That shows long before it shows in the sum, so
    the sizes can be small.
    """
    small, large = (places(prepare(n)) for n in (size, 4 * size))
    steep = [
        f"{line}: {small[line]} for {size}, {count} for {4 * size}"
        for line, count in large.most_common()
        if count > 6 * small[line] + 12 * size
    ]
    assert not steep, "\n".join(steep[:10])
    assert small.total() > size
    assert large.total() <= 4.6 * small.total(), f"{small.total()} -> {large.total()}"
