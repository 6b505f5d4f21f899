"""torch's two ONNX exporters through one call; both leave the module path on every node.

TorchScript names nodes after the last part of a module's name, which is ambiguous as soon as a
graph module calls 'layer1.0.conv1' and 'layer2.0.conv1' directly. `_Scoped` therefore offers the
whole path as that name, between marks and with its dots replaced:

    /<layer1|0>/<layer1|0|conv1>_1/Conv      '_1' after the marks counts calls

dynamo writes the path into the metadata of every node, but only from opset 18 on: older ones go
through a converter that drops metadata.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx_graphsurgeon as gs
import torch
from torch import Tensor, nn

from onnxq.errors import OptionError, UnsupportedModelError, near_matches
from onnxq.workflows.torch_names import innermost_scope
from torch_bridge.capture.flat_call import FlatCall

_OPEN, _DOT, _CLOSE = "\x02", "\x1f", "\x03"
_SCOPE = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
_PREFIX = "model"  # FlatCall's name for the user's model
_INLINE_LIMIT = 1_900_000_000  # bytes of weights that surely fit into one protobuf

DynamicAxes = Mapping[str, Mapping[int, str]]


class Request(NamedTuple):
    """One export: the call, the file, and the names in it."""

    call: FlatCall
    file: Path
    inputs: Sequence[str]
    outputs: Sequence[str]
    dynamic: DynamicAxes
    opset: int


class Exporter(NamedTuple):
    """One of torch's exporters."""

    run: Callable[[Request], None]
    path: Callable[[gs.Node], str]
    """The path of the module in which a node was made; '' for the model itself."""
    oldest: int
    newest: int
    """Opsets it writes; newer ones are reached by onnxq's own upgrade."""


def _export(module: nn.Module, request: Request, **how: Any) -> None:
    torch.onnx.export(
        module,
        request.call.tensors,
        str(request.file),
        opset_version=request.opset,
        input_names=list(request.inputs),
        output_names=list(request.outputs),
        **how,
    )


# -- TorchScript ------------------------------------------------------------------------------


class _Scoped(nn.Module):
    """A call whose modules are named by their marked paths; parameters keep their names."""

    def __init__(self, call: FlatCall) -> None:
        super().__init__()
        self.call = call

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = self.call(*tensors)
        return outputs

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        yield "", self
        for path, module in self.call.model.named_modules():
            yield f"{_OPEN}{path.replace('.', _DOT)}{_CLOSE}", module

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.call.model.state_dict(*args, **kwargs)


def _torchscript(request: Request) -> None:
    axes = {name: dict(axes) for name, axes in request.dynamic.items()}
    with _quiet(
        (DeprecationWarning, "You are using the legacy TorchScript-based ONNX export"),
        (DeprecationWarning, "The feature will be removed"),
        # Its own way to write the sizes of a pad; they are folded when the file is read.
        (UserWarning, "Constant folding - Only steps=1 can be constant folded"),
    ):
        _export(_Scoped(request.call).eval(), request, dynamo=False, dynamic_axes=axes)


def _torchscript_path(node: gs.Node) -> str:
    scopes = _SCOPE.findall(node.name)
    return scopes[-1].replace(_DOT, ".") if scopes else ""


# -- dynamo -----------------------------------------------------------------------------------


def _dynamo(request: Request) -> None:
    parameters = request.call.state_dict().values()
    size = sum(t.numel() * t.element_size() for t in parameters)
    shapes = tuple(dict(request.dynamic.get(name, {})) or None for name in request.inputs)
    with _quiet(
        (FutureWarning, r"`isinstance\(treespec, LeafSpec\)` is deprecated"),
        # Axes that the model needs to be equal get one name, which the file shows.
        (UserWarning, "# The axis name: .+ will not be used, since it shares the same shape"),
    ):
        _export(
            request.call,
            request,
            dynamo=True,
            dynamic_shapes=(shapes,) if request.dynamic else None,
            external_data=size > _INLINE_LIMIT,
            verbose=False,
        )


def _dynamo_path(node: gs.Node) -> str:
    return innermost_scope(node).removeprefix(_PREFIX).removeprefix(".")


EXPORTERS: dict[str, Exporter] = {
    "torchscript": Exporter(_torchscript, _torchscript_path, 15, 20),
    "dynamo": Exporter(_dynamo, _dynamo_path, 18, 20),
}


def exporter(name: str) -> Exporter:
    """The exporter of that name."""
    if name not in EXPORTERS:
        raise OptionError(f"torch has no ONNX exporter '{name}'", fix=near_matches(name, EXPORTERS))
    return EXPORTERS[name]


def run(which: Exporter, request: Request) -> None:
    """Write the file; failures of torch become errors with a next step."""
    try:
        which.run(request)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"torch's dynamo exporter needs the package '{error.name}'",
            fix=f"pip install {error.name}, or use exporter='torchscript'",
        ) from error
    except torch.onnx.OnnxExporterError as error:
        other = next(name for name, e in EXPORTERS.items() if e is not which)
        raise UnsupportedModelError(
            f"torch cannot export the model: {_summary(error)}", fix=f"try exporter='{other}'"
        ) from error
    except RuntimeError as error:
        if "dynamo-optimized" not in str(error):
            raise
        raise UnsupportedModelError(
            "the model was compiled in place, which torch cannot trace",
            fix="compile with torch.compile(model), which leaves the model itself as it is",
        ) from error


def _summary(error: Exception) -> str:
    """The first line of the underlying error: torch's own only says that there was one."""
    while error.__cause__ is not None:
        error = error.__cause__  # type: ignore[assignment]
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextlib.contextmanager
def _quiet(*ignored: tuple[type[Warning], str]) -> Iterator[None]:
    """Hide torch's messages about its own exporter from the user, and no others."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        for category, message in ignored:
            warnings.filterwarnings("ignore", message, category)
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
