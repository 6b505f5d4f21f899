"""The sound models that attacks start from: the zoo, a network in every dialect, small fixtures."""

from __future__ import annotations

import functools
from collections.abc import Callable

from onnxq.backend import find_backend
from onnxq.graph import Model
from tests.models.dialects import WRITERS, written
from tests.models.foreign_files import FOLDER as FIXTURES
from tests.models.networks import quantized
from tests.models.zoo import ZOO

_LARGEST = 40_000
"""Most bytes of a fixture: time is for many attacks, not for large models."""
_QUANTIZED = ("qdq_", "qop_", "composed_", "qonnx_", "openvino_", "matmul_nbits")


@functools.cache
def _network(backend: str) -> Model:
    return quantized("conv1d", find_backend(backend))


def _in_dialect(dialect: str, backend: str) -> bytes:
    return written(_network(backend), dialect).to_proto().SerializeToString()


def _zoo(name: str) -> bytes:
    return ZOO[name]().SerializeToString()


def _sources() -> list[list[tuple[str, Callable[[], bytes]]]]:
    zoo = [(name, functools.partial(_zoo, name)) for name in sorted(ZOO)]
    networks = [
        (f"{dialect}, {backend}", functools.partial(_in_dialect, dialect, backend))
        for dialect in WRITERS
        for backend in ("onnxruntime", "tensorrt")
    ]
    networks.append(("canonical, nnie", functools.partial(_in_dialect, "canonical", "nnie")))
    files = [
        (str(path.relative_to(FIXTURES)), path.read_bytes)
        for path in sorted(FIXTURES.rglob("*.onnx"))
        if path.stat().st_size <= _LARGEST
    ]
    return [
        [item for item in zoo if item[0].startswith(_QUANTIZED)],
        networks,
        [item for item in zoo if not item[0].startswith(_QUANTIZED)],
        files or networks,
    ]


@functools.cache
def groups() -> list[list[tuple[str, Callable[[], bytes]]]]:
    """Quantized models of the zoo, networks in all dialects, other models of the zoo, fixtures."""
    return _sources()


@functools.cache
def content(group: int, at: int) -> bytes:
    """The bytes of one model."""
    return groups()[group][at][1]()
