"""Broken side files: fields of JSON, words and lines of text, fields of messages, bytes of any."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from random import Random
from typing import Any

DIGITS = "1" * 5000
WORDS = (
    *("0", "-1", "1", "1e400", "1e-46", "1e-400", "nan", "-inf", "infinity", DIGITS, str(2**63)),
    *("1_0", "+1", "0x10", "\u0661", "true", "''", "[]", "{}", "x", "-0.0", "127", "128", "1e39"),
)
"""What stands in place of a word of a text file."""


class Raw(str):
    """Text that goes into a JSON document as it is."""

    __slots__ = ()


VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2, 8, 16, 127, 128, 255, 2**31, 2**63, -(2**63), 0.5, -0.0, 1e-46, 1e39, 3.5e38),
    *(True, False, None, "", "x", "nan", "1_0", "8", [], {}, [1.0], ["x"], {"x": 1}, math.nan),
    *(Raw("1e400"), Raw("-1e400"), Raw("Infinity"), Raw(DIGITS), Raw("[" * 3000 + "]" * 3000)),
    *(Raw('"\\ud800"'), Raw("1.0000000000000000000000000000001"), Raw("0e0"), Raw("1E-5")),
)
"""What stands in place of a value of a JSON document."""


def dumped(document: Any) -> str:
    """JSON text; an object is a list of pairs, so that a key may stand twice."""
    if isinstance(document, Raw):
        return str(document)
    if isinstance(document, tuple):
        pairs = (f"{json.dumps(k, ensure_ascii=False)}: {dumped(v)}" for k, v in document)
        return "{" + ",\n ".join(pairs) + "}"
    if isinstance(document, list):
        return "[" + ", ".join(map(dumped, document)) + "]"
    if isinstance(document, dict):
        return dumped(tuple(document.items()))
    return json.dumps(document, ensure_ascii=False)


def broken_json(text: str, random: Random) -> str:
    """A document with one field changed."""
    document = json.loads(text, object_pairs_hook=lambda pairs: tuple(pairs))
    places = list(_places(document, ()))
    return dumped(_changed(document, random.choice(places), random.choice(_EDITS), random))


def _places(document: Any, path: tuple[int, ...]) -> Any:
    """The paths of all containers that are not empty."""
    if isinstance(document, tuple | list) and document:
        yield path
        for at, part in enumerate(document):
            yield from _places(part[1] if isinstance(document, tuple) else part, (*path, at))


Edit = Callable[[list[Any], int, Random, bool], None]


def _changed(document: Any, path: tuple[int, ...], edit: Edit, random: Random) -> Any:
    is_object = isinstance(document, tuple)
    parts = [list(p) for p in document] if is_object else list(document)
    if path:
        at = path[0]
        if is_object:
            parts[at][1] = _changed(parts[at][1], path[1:], edit, random)
        else:
            parts[at] = _changed(parts[at], path[1:], edit, random)
    else:
        edit(parts, random.randrange(len(parts)), random, is_object)
    return tuple((k, v) for k, v in parts) if is_object else parts


def _delete(parts: list[Any], at: int, random: Random, is_object: bool) -> None:
    del parts[at]


def _duplicate(parts: list[Any], at: int, random: Random, is_object: bool) -> None:
    parts.insert(random.randrange(len(parts) + 1), parts[at])


def _rename(parts: list[Any], at: int, random: Random, is_object: bool) -> None:
    if not is_object:
        return _swap(parts, at, random, is_object)
    others = [key for key, _ in parts]
    name = random.choice([*others, parts[at][0] + "x", parts[at][0].upper(), "", "min", "scale"])
    parts[at] = [name, parts[at][1]]
    return None


def _replace(parts: list[Any], at: int, random: Random, is_object: bool) -> None:
    value = random.choice(VALUES)
    parts[at] = [parts[at][0], value] if is_object else value


def _nudge(parts: list[Any], at: int, random: Random, is_object: bool) -> None:
    value = parts[at][1] if is_object else parts[at]
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int | float):
        value = random.choice([value + 1, value - 1, -value, value * 2, value / 2, str(value)])
    elif isinstance(value, str):
        value = random.choice([value + "1", value[:-1], value.swapcase(), [value]])
    elif isinstance(value, list):
        value = random.choice([value[:-1], [*value, *value[-1:]], value[::-1], [value]])
    parts[at] = [parts[at][0], value] if is_object else value


def _swap(parts: list[Any], at: int, random: Random, is_object: bool) -> None:
    other = random.randrange(len(parts))
    if is_object:
        parts[at][1], parts[other][1] = parts[other][1], parts[at][1]
    else:
        parts[at], parts[other] = parts[other], parts[at]


_EDITS: tuple[Edit, ...] = (_delete, _duplicate, _rename, _replace, _replace, _nudge, _nudge, _swap)


def broken_text(text: str, random: Random) -> str:
    """Text with a line or a word changed."""
    lines = text.split("\n")
    at = random.randrange(len(lines))
    kind = random.randrange(6)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(random.randrange(len(lines) + 1), lines[at])
    elif kind == 2:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    else:
        words = lines[at].split(" ")
        word = random.randrange(len(words))
        given = words[word].strip("[],")
        keys = given.rpartition("=")
        new = random.choice((*WORDS, given + "1", given[:-1], f"-{given}", f"{given} {given}"))
        words[word] = words[word].replace(given, f"{keys[0]}{keys[1]}{new}" if keys[1] else new)
        lines[at] = " ".join(words)
    return "\n".join(lines)


def broken_bytes(data: bytes, random: Random) -> bytes:
    """Bytes cut off, flipped, repeated, or in another encoding."""
    made = bytearray(data)
    at = random.randrange(len(made) or 1)
    kind = random.randrange(7)
    if kind == 0:
        del made[at:]
    elif kind == 1 and made:
        made[at] ^= 1 << random.randrange(8)
    elif kind == 2:
        made[at:at] = made[at : at + random.randrange(1, 40)]
    elif kind == 3:
        del made[at : at + random.randrange(1, 20)]
    elif kind == 4:
        made[at:at] = random.choice([b"\0", b"\xff", b"\xe9", b"\xef\xbb\xbf", b"\r", b"\n\n"])
    elif kind == 5:
        made[:0] = random.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b"\0", b" "])
    elif made:
        made[at] = random.randrange(256)
    return bytes(made)


def broken_message(message: Any, random: Random) -> None:
    """A protobuf message with one field changed."""
    while True:
        fields = [field for field, _ in message.ListFields()]
        field = random.choice(fields)
        value = getattr(message, field.name)
        is_list = hasattr(value, "extend")
        if field.message_type is not None and random.random() < 0.8:
            message = random.choice(list(value)) if is_list else value
            if message.ListFields():
                continue
            return
        break
    if random.random() < 0.3:
        message.ClearField(field.name)
    elif is_list:
        if random.random() < 0.5:
            del value[random.randrange(len(value))]
        elif field.message_type is None:
            at = random.randrange(len(value))
            value[at] = random.choice([0.0, -1.0, math.nan, math.inf, 1e-45, 1.0])
        else:
            value.add().CopyFrom(value[0])
    elif isinstance(value, str):
        setattr(message, field.name, random.choice(["", value + "x", "conv.w", "0.0.1"]))
    elif isinstance(value, int):
        setattr(message, field.name, random.choice([0, 1, -1, 2, 4, 7, 128, 2**31 - 1, value + 1]))
