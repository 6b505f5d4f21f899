"""Attacks with broken side files: each is refused, or read as exactly what it says.

A seed chooses a format and what to break in a sound file of it. Where onnxq reads the result, three
things must hold: written again it says the same (`tests.fuzz.side_facts`), it reads back as the
same table, and the quantizers put into the model are those of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import OnnxqError, SaveError
from onnxq.formats import mnn_compression
from onnxq.graph import Model, from_proto
from onnxq.ncnn import reader, writer
from onnxq.ncnn.program import read_bin, read_param
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files.side_file import Content, SideFile, find_format
from onnxq.workflows.encodings import read_all, read_content, with_encodings
from passes.infer_shapes import InferShapes
from tests.fuzz.outcome import Outcome
from tests.fuzz.side_facts import FILLED, disagreement, facts_of
from tests.fuzz.side_mutations import broken_bytes, broken_json, broken_message, broken_text
from tests.models.build import apply
from tests.onnxq.formats.check import named_model
from tests.onnxq.ncnn.cases import CASES, int8

NATIVE = "ncnn (.param and .bin)"
METADATA = "table in metadata"


def row(name: str, kind: str, scale: Any, zero: Any = 0, **more: Any) -> QParams:
    """One row."""
    return QParams(name, qtype(kind), np.asarray(scale), np.asarray(zero), **more)


def _weight(name: str, kind: str, scale: Any, zero: Any = 0, **more: Any) -> QParams:
    return row(name, kind, scale, zero, role=Role.WEIGHT, **more)


STEPS = [0.5, 0.25, 0.1, 0.3, 0.7, 0.05]
_WIDE = [
    row("x", "uint8", 0.1, 30),
    row("c", "int8", 0.05),
    row("g", "uint16", 0.001, 7),
    _weight("conv.w", "int8", STEPS, axis=0),
    _weight("mat.w", "uint8", 0.02, 128),
]
_BIAS = row("conv.b", "int32", STEPS, axis=0, role=Role.BIAS)
_NARROW = {"lo": -127}
_MIRRORED = [row("x", "int8", 0.1, **_NARROW), row("c", "int8", 0.3, **_NARROW)]
_LAYER = [
    row("x", "int8", 0.1, **_NARROW),
    _weight("conv.w", "int8", STEPS, axis=0, **_NARROW),
]
_RANGES = [row("x", "int8", 0.1), row("c", "int8", 0.3), row("größe: 1", "int8", 0.7)]
_EVERYTHING = [
    *_WIDE,
    _BIAS,
    row("u", "int8", 0.1, 3, lo=-100, hi=90),
    _weight("gemm.w", "int4", np.full((2, 5), 0.5), axis=0, block=4),
    row("f", "float8e4m3fn", 0.5),
]
_LOGARITHMIC = [LogParams("u", 2.5), LogParams("h", 1.5), LogParams("mat.w", 0.5, Role.WEIGHT)]
TABLES: dict[str, QParamTable] = {
    **dict.fromkeys(("aimet-0.6.1", "aimet-1.0.0", "aimet-2.0.0"), QParamTable([*_WIDE, _BIAS])),
    "ascend-record": QParamTable(
        [row("x", "int8", 0.1, -3), _weight("conv.w", "int8", STEPS, axis=0)]
    ),
    "mnn-compression": QParamTable([*_LAYER, row("c", "int8", 0.3, 5)]),
    "mqbench-nnie": QParamTable(logarithmic=_LOGARITHMIC),
    "mqbench-ppl": QParamTable(
        [row("x", "uint16", 0.1, 7), _weight("conv.w", "uint8", STEPS, 5, axis=0)]
    ),
    "mqbench-ppl-cuda": QParamTable(_MIRRORED),
    "mqbench-snpe": QParamTable([row("x", "uint8", 0.1, 30), row("c", "int16", 0.3, lo=-32767)]),
    "mqbench-stpu": QParamTable([*_MIRRORED, _weight("conv.w", "int8", 0.5, **_NARROW)]),
    "mqbench-vitis": QParamTable([row("x", "int8", 0.25), _weight("conv.w", "int8", 0.5)]),
    "ncnn-table": QParamTable(_LAYER),
    "onnxq": QParamTable(_EVERYTHING),
    "ppl-nn": QParamTable(_WIDE),
    "ppq": QParamTable(_WIDE),
    "ppq-mnn": QParamTable(_MIRRORED),
    "ppq-qnn": QParamTable(_WIDE),
    **dict.fromkeys(("ppq-tensorrt", "tensorrt-ranges", "tensorrt-cache"), QParamTable(_RANGES)),
    "rknn-hybrid": QParamTable(_WIDE),
    "tengine-scale": QParamTable([row("x", "uint8", 0.1, 30), row("c", "uint8", 0.3)]),
}
"""What the sound file of each format holds, for the float model of the format tests."""


@cache
def subjects() -> tuple[str, ...]:
    """All that is attacked, by name."""
    return (*sorted(TABLES), METADATA, NATIVE)


@cache
def model() -> Model:
    """The float model."""
    return named_model()


@cache
def sound(name: str) -> Content:
    """The sound file of a format."""
    return find_format(name).write(TABLES[name], model())


_REWRITTEN = ("Gemm", "Gemm scaled", "HardSwish", "Add of a column")
NETWORKS = [name for name in CASES if name not in _REWRITTEN and "Global" not in name]
"""Those that are written layer for layer as they were read."""


@cache
def native(name: str) -> Mapping[str, Content]:
    """The sound files of ncnn for a small network."""
    return writer.write(int8(name))


def attack(seed: int, folder: Path) -> Outcome:
    """Attack with one broken file; the files stay in `folder`."""
    names = subjects()
    return attack_with(names[seed % len(names)], seed, folder)


def attack_with(name: str, seed: int, folder: Path) -> Outcome:
    """The same for one subject."""
    random = Random(f"{name} {seed}")
    attacks: dict[str, Callable[[Random, Path], str]] = {NATIVE: _native, METADATA: _metadata}
    try:
        finding = attacks[name](random, folder) if name in attacks else _side(name, random, folder)
    except OnnxqError as error:
        if not error.what or not error.fix:
            raise AssertionError(f"seed {seed} ({name}): an error without a way on") from error
        return Outcome.REFUSED
    except AssertionError as error:
        raise AssertionError(f"seed {seed} ({name}): {error}") from error
    except Exception as error:
        raise AssertionError(f"seed {seed} ({name}): {type(error).__name__}: {error}") from error
    assert not finding, f"seed {seed} ({name}): {finding}"
    return Outcome.EQUAL


def broken(name: str, random: Random) -> bytes:
    """A broken file of a format."""
    content = sound(name)
    if isinstance(content, bytes):
        if random.random() < 0.5:
            return broken_bytes(content, random)
        message: Any = mnn_compression._pipeline()()
        message.ParseFromString(content)
        broken_message(message, random)
        return bytes(message.SerializePartialToString())
    if random.random() < 0.25:
        return broken_bytes(content.encode(), random)
    breaks = broken_json if content.startswith("{") else broken_text
    return breaks(content, random).encode("utf-8", "surrogatepass")


def _side(name: str, random: Random, folder: Path) -> str:
    path = folder / "side_file"
    path.write_bytes(broken(name, random))
    side_file, content = read_content(path)
    table = read_all([path], model()).table
    applied, _ = with_encodings(model(), [path], allow_missing=True)
    return _differs(side_file, content, table) or _misapplied(applied, table)


def _differs(side_file: SideFile, content: Content, table: QParamTable) -> str:
    """How the table differs from what the file says; '' where it does not."""
    if not side_file.weights:
        table = QParamTable(table.of(Role.ACTIVATION))
    try:
        again = side_file.write(table, model())
    except SaveError:
        return ""  # read, but never written so: the file of another tool
    if sorted(map(repr, side_file.read(again, model()))) != sorted(map(repr, table)):
        return "the table written and read again is another one"
    said, left_out = facts_of(side_file.name, content), side_file.float_tensors(content)
    kept = {path: value for path, value in said.items() if not left_out & {*path}}
    # Who reads a tensor that PPQ rounds where it is made needs no entry, and is written one.
    filled = ".*" if side_file.name == "ppq" else FILLED
    return disagreement(kept, facts_of(side_file.name, again), filled)


def _misapplied(applied: Model, table: QParamTable) -> str:
    rows: dict[str, list[QParams]] = {}
    for held in table:
        rows.setdefault(held.tensor, []).append(held)
    for node in applied.nodes(FAKE_QUANTIZE):
        source = node
        while source.inputs[0].inputs and source.inputs[0].inputs[0].op == node.op:
            source = source.inputs[0].inputs[0]
        name = source.inputs[0].name
        made = params_of(node)
        if not any(made.same_grid(r) for r in rows.get(name, ())):
            return f"'{name}' got a quantizer that the file does not have"
    return ""


def _metadata(random: Random, folder: Path) -> str:
    carrier = model().clone()
    carrier.qparams = TABLES["onnxq"]
    proto = carrier.to_proto()
    (entry,) = (e for e in proto.metadata_props if e.key == "onnxq.qparams")
    entry.value = broken_json(entry.value, random)
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    read = from_proto(proto).qparams
    return disagreement(facts_of("onnxq", entry.value), facts_of("onnxq", read.dumps()))


def _native(random: Random, folder: Path) -> str:
    files = dict(native(random.choice(NETWORKS)))
    param, weights = files["param"], files["bin"]
    assert isinstance(param, str)
    assert isinstance(weights, bytes)
    if random.random() < 0.7:
        files["param"] = broken_text(param, random)
    else:
        files["bin"] = broken_bytes(weights, random)
    for part, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"model.{part}").write_bytes(data)
    again = writer.write(_shaped(reader.read(files)))
    return "".join(_unlike(files, again))


def _shaped(read: Model) -> Model:
    """With the shapes that the writer needs: the reader declares ranks alone."""
    for tensor in read.graph.outputs:
        tensor.shape = tensor.output_info = None
    return apply(read, InferShapes())[0]


def _unlike(files: Mapping[str, Content], again: Mapping[str, Content]) -> Iterator[str]:
    one, other = (_program(f["param"], f["bin"]) for f in (files, again))
    if one.keys() != other.keys():
        yield f"{sorted(one)} is not {sorted(other)}"
        return
    for layer, weights in one.items():
        for left, right in zip(weights, other[layer], strict=True):
            if left.dtype != right.dtype or not np.allclose(left, right, rtol=1e-6, atol=0):
                yield f"the weights {left} of {layer} are {right}"


def _program(param: Content, data: Content) -> dict[str, tuple[Any, ...]]:
    """The layers by what they compute, with their weights: names and order do not matter."""
    assert isinstance(param, str)
    assert isinstance(data, bytes)
    found: dict[str, tuple[Any, ...]] = {}
    made: dict[str, str] = {}
    for layer in read_bin(data, read_param(param)):
        values = sorted((key, np.float32(value).tolist()) for key, value in layer.params.items())
        reads = [made[blob] for blob in layer.bottoms]
        what = f"{layer.type}({', '.join(reads)}) {values}"
        while what in found:
            what += "'"
        found[what] = layer.weights
        made |= {blob: f"{what}:{at}" for at, blob in enumerate(layer.tops)}
    return found
