"""What a side file says, found by other means than onnxq's readers: paths and plain values.

Two files say the same where their facts agree. `write(read(file))` must say what the file does,
apart from what the format's readers are known to pass over (`OPEN`) or to fill in (`FILLED`).
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from onnxq.formats import mnn_compression

Facts = dict[tuple[Any, ...], Any]

OPEN = {
    "aimet-0.6.1": r"(?!activation_encodings|param_encodings|version)",
    "aimet-1.0.0": r"(?!activation_encodings|param_encodings|version)|.*/zero_point_shift",
    "aimet-2.0.0": r"(?!encodings)",
    "ppl-nn": r"op_info|.*/(algorithm|hash|dominator|sym|quant_flag)",
    "ppq-mnn": r"shape",
    "mqbench-stpu": r".*(/emin$|_bias/)",
    "onnxq": r".*/source",
}
"""What has no meaning for the quantization, or follows from the rest."""
FILLED = r".*/(min|max|q_min|q_max|y_zero_point|lo|hi|role|sym|quant_flag|algorithm|emin|axis)\b"
"""What is written although a file may leave it out."""
_DEFAULTS = {("y_zero_point", 0.0)}
"""Values that are as good as none."""
_ENDS = {"min": 1, "max": 1, "tensor_min": 1, "tensor_max": 1}


def facts_of(name: str, content: Any) -> Facts:
    """The facts in the content of a file of format `name`."""
    if name == "mnn-compression":
        return _mnn(content)
    if name == "ppq":
        return _ppq(json.loads(content))
    if name in ("tengine-scale", "mqbench-ppl-cuda", "tensorrt-cache", "ncnn-table"):
        return _lines(name, content)
    if name in ("ascend-record", "rknn-hybrid"):
        return _blocks(content)
    found: Facts = {}
    _flatten(json.loads(content), (), found)
    skipped = re.compile(OPEN.get(name, "(?!)"))
    return {
        path: value
        for path, value in found.items()
        if not skipped.match("/".join(map(str, path))) and (path[-1], value) not in _DEFAULTS
    }


def disagreement(one: Facts, other: Facts, filled: str = FILLED) -> str:
    """Where what was written, `other`, says something else than the file did; '' where nowhere."""
    for path, value in one.items():
        if path not in other:
            return f"{path} = {value!r} is lost"
        if not _same(value, other[path], _step(path, one)):
            return f"{path} was {value!r} and is {other[path]!r}"
    for path in other.keys() - one.keys():
        if not re.match(filled, "/".join(map(str, path))):
            return f"{path} = {other[path]!r} is new"
    return ""


def _same(one: Any, other: Any, step: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if one == other or abs(one - other) <= 1e-5 * abs(one):
            return True
        return abs(one - other) <= 0.011 * step
    return type(one) is type(other) and bool(one == other)


def _step(path: tuple[Any, ...], facts: Facts) -> float:
    """The step that an end of a range lies within a hundredth of; 0 for anything else."""
    at = next((i for i, part in enumerate(path) if part in _ENDS), None)
    if at is None:
        return 0.0
    for key in ("scale", "step"):
        found = facts.get((*path[:at], key, *path[at + 1 :]))
        if isinstance(found, float):
            return abs(found)
    low, high, bits = (facts.get((*path[:at], key)) for key in ("min", "max", "bitwidth"))
    if not isinstance(low, float) or not isinstance(high, float):
        return 0.0
    return abs(high - low) / (2.0**bits - 1 if isinstance(bits, float) else 255.0)


def _number(value: Any) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _flatten(value: Any, path: tuple[Any, ...], found: Facts) -> None:
    if isinstance(value, dict):
        for key, part in value.items():
            _flatten(part, (*path, key), found)
    elif isinstance(value, list):
        if path[-1:] in (("zero_point",), ("y_zero_point",)) and _all_equal(value):
            return _flatten(value[0], path, found)  # one for all
        if len(value) == 1 and not isinstance(value[0], dict):
            return _flatten(value[0], path, found)
        for at, part in enumerate(value):
            _flatten(part, (*path, at), found)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        found[path] = value
    else:
        found[path] = _number(value)
    return None


def _all_equal(values: list[Any]) -> bool:
    return bool(values) and all(type(v) in (int, float) and v == values[0] for v in values)


def _lines(name: str, text: str) -> Facts:
    """Lines of a key and values."""
    found: Facts = {}
    for line in text.split("\n"):
        if not line.strip() or line.startswith("TRT-"):
            continue
        if name in ("tengine-scale", "ncnn-table"):
            key, *words = line.split()
        else:
            key, _, last = line.rstrip().rpartition(":")
            words = [last.strip()]
        assert (key,) not in found, f"'{key}' is a duplicate key and is read"
        if name == "tensorrt-cache":
            found[(key,)] = words[0].lower()
        elif len({*words}) == 1:
            found[(key,)] = float(words[0])
        else:
            found |= {(key, at): float(word) for at, word in enumerate(words)}
    return found


def _blocks(text: str) -> Facts:
    """Keys within the block of a tensor or node; ends of ranges and sizes follow from the rest."""
    found: Facts = {}
    block = key = ""
    for line in text.split("\n"):
        words = [w for w in re.split(r"[\s,\[\]]+", line.strip()) if w]
        if not words or words[0].startswith("#") or words[0] in ("record", "value", "}"):
            continue
        if words[0] == "-":
            words = [key, *words[1:]]
        key = words[0].rstrip(":")
        if re.match(r" {4}\S.*:\s*$", line):
            block = key = _unquoted(line.strip().removesuffix(":"))
            words = [key]
        elif key == "key":
            block = line.strip()
        if key not in ("min", "max", "ori_min", "ori_max", "qtype", "channels", "height", "width"):
            found[block, key] = (*found.get((block, key), ()), *map(_word, words[1:]))
    return found


def _unquoted(name: str) -> str:
    """A key of YAML; one may stand in quotes that need not."""
    quoted = re.fullmatch(r"'((?:[^']|'')*)'", name)
    return name if quoted is None else quoted[1].replace("''", "'")


def _word(word: str) -> Any:
    try:
        return _number(float(word))
    except ValueError:
        return word.strip("'\"")


def _ppq(document: Any) -> Facts:
    """Entries with the values of their dominators; numbers of entries mean nothing."""
    found: Facts = {}
    for node, tensors in document["configs"].items():
        for tensor, entry in tensors.items():
            if entry["state"] in ("FP32", "SOI", "DEQUANTIZED", "INITIAL", "DEACTIVATED"):
                continue
            if entry["bit_width"] > 16:
                continue
            value = document["values"][str(int(entry["dominator"]))]
            channels = entry["policy"]["PER_CHANNEL"]
            told = {"lo": entry["quant_min"], "hi": entry["quant_max"], "channels": channels}
            _flatten(told | value, (node, tensor), found)
    return found


def _mnn(data: bytes) -> Facts:
    message: Any = mnn_compression._pipeline()()
    message.ParseFromString(data)
    found: Facts = {}
    for algorithm in message.algo:
        for layer in algorithm.quant_params.layer:
            for entry in (*layer.input, *layer.output, *layer.weight):
                told = {"scales": list(entry.scales), "z": getattr(entry, "zero_point", 0)}
                told |= {"codes": (entry.clamp_min, entry.clamp_max)}
                if len(set(told["scales"])) == 1:
                    told["scales"] = told["scales"][0]
                _flatten(told, (entry.name,), found)
    return found
