"""Commands do work in proportion to the size of the model, in whatever way it is large."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from onnxq.backend import Backend, backends
from tests.checks.counted_code import assert_every_line_linear, counted
from tests.models.growing_models import SHAPES

SIZE = 8

WAYS = [
    (name, variant)
    for name, backend in backends().items()
    if isinstance(backend, Backend) and backend.writes
    for variant in (None, *backend.variants)
]
"""Every way to convert; each shape is converted in one of them."""


@pytest.fixture(scope="module", autouse=True)
def copy() -> Iterator[None]:
    """The counted copy, with low limits for what is looked through item by item."""
    with counted(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_module("graph.links"), "LONG", 4)
        patch.setattr(_module("graph.constants"), "_MOST_NODES", 1)
        yield


def _module(name: str) -> Any:
    return import_module(f"onnxq.{name}")


def _inspect(model: Any) -> None:
    found = _module("workflows.summary").summarize(model)
    found.to_json()
    _module("views.tables").summary(found)


def _lint(model: Any) -> None:
    _module("workflows.lint_model").lint(model, "onnxruntime")


def _explain(model: Any) -> None:
    _module("workflows.explain").explain(model, model.graph.outputs[0].name, "onnxruntime")


def _check(shape: str, command: Callable[[Any], object]) -> None:
    errors = _module("errors")

    def prepare(size: int) -> Callable[[], object]:
        proto = SHAPES[shape](size)

        def call() -> None:
            # A refusal is to be quick as well.
            with contextlib.suppress(errors.BackendError, errors.PassError, errors.SaveError):
                command(_module("graph").from_proto(proto))

        return call

    prepare(2)()  # tables that are made once
    assert_every_line_linear(prepare, SIZE)


@pytest.mark.parametrize(
    ("shape", "command"),
    [
        *itertools.product(SHAPES, [_inspect, _lint]),
        *itertools.product(["shared_scale", "moving_chain", "plain_sums", "fan_out"], [_explain]),
    ],
)
def test_looking(shape: str, command: Callable[[Any], None]) -> None:
    _check(shape, command)


@pytest.mark.parametrize(
    ("shape", "way"),
    [*zip(SHAPES, itertools.cycle(WAYS), strict=False)],
)
def test_converting(shape: str, way: tuple[str, str | None]) -> None:
    backend, variant = way
    _check(
        shape,
        lambda m: _module("workflows.convert").convert(m, backend, variant=variant, verify=False),
    )
