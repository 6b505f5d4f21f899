"""Float islands: operators that onnxruntime keeps in float beside kernels on codes.

An island is a set of float operators connected by their tensors. It lies beside codes if one of
its inputs is dequantized at run time (weights are not: their codes are constants), one of its
outputs is quantized, or an integer operator takes or makes one of its floats. A conversion costs
time only because of the island it leads to, so it is charged to the float operator next to it:
a DequantizeLinear to its first float consumer, a QuantizeLinear to its float producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from onnx import NodeProto

from onnxq.timing.kernel_kinds import Kind


@dataclass(eq=False)
class Kernel:
    """A node of the graph that onnxruntime runs."""

    node: NodeProto
    kind: Kind
    microseconds: float = 0.0


@dataclass(eq=False)
class FloatKernel:
    """A float operator of an island."""

    kernel: Kernel
    conversions: float = 0.0
    """Microseconds of the conversions charged to it."""
    before: list[str] = field(default_factory=list)
    """Operators that make the codes it gets dequantized, or the floats of integer operators."""
    after: list[str] = field(default_factory=list)
    """Operators that read its results quantized."""


@dataclass(frozen=True)
class Islands:
    """The islands of a graph."""

    kernels: tuple[FloatKernel, ...]
    """The operators of all islands, the most expensive first."""
    count: int


def float_islands(kernels: Sequence[Kernel], constants: Iterable[str]) -> Islands:
    """The islands beside codes; `constants` are the names of initializers."""
    graph = _Graph(kernels, set(constants))
    members = {id(k): FloatKernel(k) for k in kernels if k.kind == "float"}
    beside: set[int] = set()
    for kernel in kernels:
        if kernel.kind == "conversion":
            found = _charge(graph, kernel, members)
            if found is not None:
                beside.add(graph.root(found.kernel))
        elif kernel.kind == "integer":
            for made in graph.makers(kernel):
                if made.kind == "float":
                    members[id(made)].after.append(kernel.node.op_type)
                    beside.add(graph.root(made))
            for user in graph.users(kernel):
                if user.kind == "float":
                    members[id(user)].before.append(kernel.node.op_type)
                    beside.add(graph.root(user))
    chosen = [m for m in members.values() if graph.root(m.kernel) in beside]
    chosen.sort(key=lambda m: -(m.kernel.microseconds + m.conversions))
    return Islands(tuple(chosen), len(beside))


def _charge(
    graph: _Graph, conversion: Kernel, members: dict[int, FloatKernel]
) -> FloatKernel | None:
    """Charge a conversion at run time to the float operator next to it, if there is one."""
    if conversion.node.op_type == "DequantizeLinear":
        codes = conversion.node.input[0]
        if codes in graph.constants:
            return None
        users = [members[id(k)] for k in graph.users(conversion) if k.kind == "float"]
        made = graph.maker.get(codes)
        for user in users:
            user.before.append("the input" if made is None else _op_of_codes(graph, made))
        charged = next(iter(users), None)
    else:
        maker = graph.maker.get(conversion.node.input[0])
        charged = None if maker is None else members.get(id(maker))
        if charged is not None:
            charged.after += (_op_after(graph, user) for user in graph.users(conversion))
    if charged is not None:
        charged.conversions += conversion.microseconds
    return charged


def _op_of_codes(graph: _Graph, kernel: Kernel) -> str:
    """The operator that made codes: before a QuantizeLinear, the one it quantizes."""
    made = graph.maker.get(kernel.node.input[0]) if kernel.kind == "conversion" else kernel
    return "the input" if made is None else str(made.node.op_type)


def _op_after(graph: _Graph, kernel: Kernel) -> str:
    """The operator that reads codes: after a DequantizeLinear, the one it leads to."""
    users = graph.users(kernel) if kernel.kind == "conversion" else [kernel]
    return "the output" if not users else str(users[0].node.op_type)


class _Graph:
    """How tensors connect kernels; float kernels that share a float tensor have one root."""

    def __init__(self, kernels: Sequence[Kernel], constants: set[str]) -> None:
        self.constants = constants
        self.maker = {name: k for k in kernels for name in k.node.output if name}
        self._users: dict[str, list[Kernel]] = {}
        self._parent = {id(k): id(k) for k in kernels}
        for kernel in kernels:
            for name in kernel.node.input:
                self._users.setdefault(name, []).append(kernel)
                made = self.maker.get(name)
                if made is not None and made.kind == kernel.kind == "float":
                    self._parent[self.root(kernel)] = self.root(made)

    def users(self, kernel: Kernel) -> list[Kernel]:
        """The consumers of a kernel's results."""
        return [user for name in kernel.node.output for user in self._users.get(name, ())]

    def makers(self, kernel: Kernel) -> Iterator[Kernel]:
        """The producers of a kernel's inputs."""
        return (self.maker[name] for name in kernel.node.input if name in self.maker)

    def root(self, kernel: Kernel) -> int:
        """What the kernels of one island have in common."""
        at = id(kernel)
        while self._parent[at] != at:
            self._parent[at] = self._parent[self._parent[at]]
            at = self._parent[at]
        return at
