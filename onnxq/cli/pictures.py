"""The options for pictures, added to every command that takes --data."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxq.arrays.pictures import Channels, Layout, Pictures
from onnxq.cli.options import DataPath
from onnxq.errors import OptionError
from onnxq.parsing import decimal_text

_ImageSize = Annotated[
    str | None,
    typer.Option(
        "--image-size",
        metavar="HxW",
        help="--data holds pictures: resize them to this size (224: 224x224).",
    ),
]
_Mean = Annotated[
    str | None,
    typer.Option(
        "--mean",
        metavar="R,G,B",
        help="Of pictures: values are (pixel / 255 - mean) / std. Default: 0.",
    ),
]
_Std = Annotated[str | None, typer.Option("--std", metavar="R,G,B", help="See --mean. Default: 1.")]
_Layout = Annotated[
    Layout | None, typer.Option("--layout", help="Axes of a picture in the model. Default: nchw.")
]
_Channels = Annotated[
    Channels | None, typer.Option("--channels", help="Channels of a picture. Default: rgb.")
]
_ADDED: dict[str, Any] = {
    "image_size": _ImageSize,
    "mean": _Mean,
    "std": _Std,
    "layout": _Layout,
    "channels": _Channels,
}


def with_pictures(command: Callable[..., None]) -> Callable[..., None]:
    """Let the parameter `data` of a command be a path or pictures."""
    signature = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    given: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "data":
            given.append(parameter.replace(annotation=DataPath, kind=keyword))
            given += [
                inspect.Parameter(name, keyword, default=None, annotation=kind)
                for name, kind in _ADDED.items()
            ]
        else:
            given.append(parameter.replace(kind=keyword))

    @functools.wraps(command)
    def called(**words: Any) -> None:
        options = {name: words.pop(name) for name in _ADDED}
        command(**words | {"data": pictures_or_path(words["data"], **options)})

    vars(called)["__signature__"] = signature.replace(parameters=given)
    called.__annotations__ = {p.name: p.annotation for p in given}
    return called


def pictures_or_path(
    data: Path | None,
    *,
    image_size: str | None = None,
    mean: str | None = None,
    std: str | None = None,
    layout: Layout | None = None,
    channels: Channels | None = None,
) -> Path | Pictures | None:
    """What --data and the options for pictures mean together."""
    options = {"--mean": mean, "--std": std, "--layout": layout, "--channels": channels}
    stated = [name for name, value in options.items() if value is not None]
    if image_size is None:
        if stated:
            raise OptionError(
                f"{stated[0]} is for pictures, whose size is not given",
                fix="add --image-size, like --image-size 224x224",
            )
        return data
    if data is None:
        raise OptionError("--image-size is for pictures, and there are none", fix="add --data")
    return Pictures(
        data,
        _size(image_size),
        _numbers("--mean", mean, 0.0),
        _numbers("--std", std, 1.0),
        layout or "nchw",
        channels or "rgb",
    )


def _size(text: str) -> tuple[int, int]:
    sides = re.fullmatch(r"([0-9]{1,9})(?:[xX]([0-9]{1,9}))?", text)
    if sides is None:
        raise OptionError(
            f"--image-size '{text}' is not a size", fix="write height x width, like 224x224"
        )
    return int(sides[1]), int(sides[2] or sides[1])


def _numbers(option: str, text: str | None, default: float) -> tuple[float, ...]:
    if text is None:
        return (default,)
    found = [decimal_text.number(word.strip()) for word in text.split(",")]
    values = tuple(value for value in found if value is not None)
    if len(values) != len(found):
        raise OptionError(
            f"{option} '{text}' is not a list of numbers", fix="write it like 0.485,0.456,0.406"
        )
    return values


__all__ = ["pictures_or_path", "with_pictures"]
