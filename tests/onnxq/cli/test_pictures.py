"""The options for pictures: how they are read, and that every command with --data has them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from onnxq.arrays.pictures import Pictures
from onnxq.cli.commands import app
from onnxq.cli.pictures import pictures_or_path, with_pictures
from onnxq.errors import OptionError

PATH = Path("data")


def test_without_a_size_data_stays_a_path() -> None:
    assert pictures_or_path(PATH) == PATH
    assert pictures_or_path(None) is None


def test_all_options() -> None:
    found = pictures_or_path(
        PATH, image_size="224x192", mean="0.5, 0.4,0.3", std="2", layout="nhwc", channels="bgr"
    )
    assert found == Pictures(PATH, (224, 192), (0.5, 0.4, 0.3), (2.0,), "nhwc", "bgr")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"image_size": "224x"}, "not a size"),
        ({"image_size": "axb"}, "not a size"),
        ({"image_size": "0x4"}, "size 0x4"),
        ({"mean": "0.5"}, "--mean is for pictures"),
        ({"layout": "nhwc"}, "--layout is for pictures"),
        ({"image_size": "4x4", "mean": "a,b"}, "--mean 'a,b'"),
        ({"image_size": "4x4", "std": ""}, "--std ''"),
        ({"image_size": "4x4", "std": "1,0,1"}, "std must be positive"),
        ({"image_size": "4x4", "mean": "1,2"}, "3 channels"),
    ],
)
def test_what_makes_no_sense_is_an_error(options: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named) as error:
        pictures_or_path(PATH, **options)
    assert error.value.fix


def test_one_number_is_a_square() -> None:
    found = pictures_or_path(PATH, image_size="224")
    assert isinstance(found, Pictures)
    assert found.shape == (3, 224, 224)


def test_a_size_without_data_is_an_error() -> None:
    with pytest.raises(OptionError, match="there are none"):
        pictures_or_path(None, image_size="4x4")


def test_a_command_gets_pictures_as_its_data() -> None:
    got: list[Any] = []

    @with_pictures
    def command(model: str, data: Any = None) -> None:
        got.append((model, data))

    names = list(inspect.signature(command).parameters)
    assert names == ["model", "data", "image_size", "mean", "std", "layout", "channels"]
    options = dict.fromkeys(names[2:])
    command(model="m", data=PATH, **options)
    command(model="m", data=PATH, **options | {"image_size": "4x5"})
    assert got == [("m", PATH), ("m", Pictures(PATH, (4, 5)))]


def test_every_command_with_data_takes_pictures() -> None:
    taking = {
        command.callback.__name__
        for command in app.registered_commands
        if command.callback and "data" in inspect.signature(command.callback).parameters
    }
    pictures = {
        command.callback.__name__
        for command in app.registered_commands
        if command.callback and "image_size" in inspect.signature(command.callback).parameters
    }
    assert pictures == taking
    assert taking >= {"convert_", "verify_", "encodings", "calibrate"}
