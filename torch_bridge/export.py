"""Writes a trained model as canonical ONNX: its eval mode, with one node for each quantizer.

The file has `onnxq::FakeQuantize` nodes (`FakeQuantizeLog` for NNIE's grid) with their function,
so it passes onnx.checker and runs in a stock onnxruntime. Node names start with the path of the
torch module that made them ('layer1.0.conv1/Conv'; a quantizer's node has the path of its module),
tensor names with the name of their node.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from onnxq import graph
from onnxq.errors import OnnxqError, OptionError, UnsupportedModelError, near_matches
from onnxq.graph import MAX_OPSET, Model
from onnxq.parsing.argument_types import PATH, takes
from onnxq.quant.qparams import Array
from torch_bridge.capture.flat_call import FlatCall
from torch_bridge.capture.module_owners import owner_of, with_owners
from torch_bridge.capture.recorded_run import RecordedRun, record
from torch_bridge.exporting import embed_parameters, exporters, unrolled_steps
from torch_bridge.exporting.exporters import DynamicAxes, Exporter, Request
from torch_bridge.exporting.single_precision import in_single_precision
from torch_bridge.state import evaluating, quantizers, uninitialised_error

_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel, AveragedModel)
Axes = Mapping[str, Mapping[int, str] | Sequence[int]]


@takes(q=nn.Module, args=(Sequence, torch.Tensor), path=PATH)
def export(
    q: nn.Module,
    args: Sequence[Any] | torch.Tensor,
    path: str | os.PathLike[str],
    *,
    kwargs: Mapping[str, Any] | None = None,
    exporter: Literal["torchscript", "dynamo"] = "torchscript",
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Axes | None = None,
    opset: int | None = None,
) -> Path:
    """Write a prepared, calibrated model as canonical ONNX and return the path.

    The model is put into eval mode for the export and every module back into its own mode. Of a
    model in another type than float32, its float32 form is written.

    Args:
        q: the result of `prepare`, with quantization enabled.
        args: positional arguments of one call.
        path: the file to write.
        kwargs: keyword arguments of that call. Tensors anywhere in the arguments become inputs,
            other values are fixed.
        exporter: 'torchscript' (fast, needs nothing else) or 'dynamo' (needs onnxscript).
        input_names: one per tensor; by default as in the signature ('x', 'batch.mask').
        output_names: one per tensor; by default keys of a returned dict, 'output', 'output_0'.
        dynamic_axes: axes of any length by input name: {'x': {0: 'batch'}} or {'x': [0]}.
        opset: 17 by default (dynamo: 18). 16-bit quantizers and blocks raise it to 21.
    """
    options = Options(exporter, input_names, output_names, dynamic_axes or {}, opset)
    export_recorded(unwrapped(q), args, kwargs, Path(path), options, results=False)
    return Path(path)


class Options(NamedTuple):
    """Arguments of `export` that say how the file is written."""

    exporter: str
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    dynamic_axes: Axes
    opset: int | None


class Exported(NamedTuple):
    """An exported model, and the run in torch that it was made from."""

    model: Model
    run: RecordedRun
    feeds: dict[str, Array]
    """The tensors of the call by the names of the model's inputs."""
    notes: tuple[str, ...] = ()
    """What the file does otherwise than the model."""


def export_recorded(
    model: nn.Module,
    args: Sequence[Any] | torch.Tensor,
    kwargs: Mapping[str, Any] | None,
    path: Path,
    options: Options,
    *,
    results: bool,
) -> Exported:
    """Write the file of `export`, and return its model; `results` is an argument of `record`."""
    which = exporters.exporter(options.exporter)
    opset = _checked_opset(options.opset, options.exporter, which)
    check_exportable(model)
    args = (args,) if isinstance(args, torch.Tensor) else args
    model, args, kwargs, note = in_single_precision(model, args, kwargs)
    with evaluating(model), torch.no_grad(), tempfile.TemporaryDirectory(prefix="onnxq-") as folder:
        call = FlatCall(with_owners(model), args, kwargs).eval()
        run = _recorded(call, model, results)
        inputs = _names("input", options.input_names, call.names)
        outputs = _names("output", options.output_names, tuple(run.outputs))
        dynamic = _dynamic_axes(options.dynamic_axes, inputs, outputs)
        file = Path(folder, "exported.onnx")
        written = min(opset, which.newest)
        unrolled = unrolled_steps.unrolled_layers(model)
        try:
            exporters.run(which, Request(call, file, inputs, outputs, dynamic, written))
        except UnsupportedModelError as error:
            if unrolled and dynamic:
                error.add_note(
                    f"{unrolled_steps.note(unrolled)}; {unrolled_steps.advice(unrolled)}"
                )
            raise
        made = graph.load(file)
        if made.opset != written:
            raise UnsupportedModelError(
                f"torch's {options.exporter} exporter wrote opset {made.opset}, not {written}",
                fix=f"ask for opset {max(made.opset, written)}",
            )
        _check_open_axes(made, dynamic)
        made.require_opset(opset, "asked for")
        model = call.model
        paths = embed_parameters.name_layers(made, lambda node: owner_of(model, which.path(node)))
        embed_parameters.resolve_aliases(made)
        embed_parameters.set_quantizers(made, model, run, paths)
        embed_parameters.name_parameters(made, paths, model.state_dict())
        graph.save(made, path)
        made = graph.load(path)  # as the file has it: names, opset, and weights where they stay
    values = (t.detach().cpu().numpy() for t in call.tensors)
    feeds = dict(zip(inputs, values, strict=True))
    if unrolled and dynamic:
        unrolled_steps.check_dynamic(path, feeds, dynamic, unrolled)
    notes = (note, unrolled_steps.note(unrolled) if unrolled else "")
    return Exported(made, run, feeds, tuple(filter(None, notes)))


def _recorded(call: FlatCall, model: nn.Module, results: bool) -> RecordedRun:
    try:
        return record(call, results=results)
    except OnnxqError:
        raise
    except Exception as error:
        raise OptionError(
            f"{type(model).__name__} fails on the inputs: {type(error).__name__}: {error}",
            fix="pass inputs that the model runs with, as those of prepare",
        ) from error


def unwrapped(q: nn.Module) -> nn.Module:
    """The model inside DistributedDataParallel, DataParallel, AveragedModel and torch.compile."""
    while True:
        if isinstance(q, _WRAPPERS):
            q = q.module
        elif type(q).__name__ == "OptimizedModule":  # torch.compile's class is not public
            (q,) = q.children()
        else:
            return q


_CALIBRATE = (
    "calibrate it first: run batches within 'with calibrating(model):', then call "
    "enable_quantization(model)"
)


def check_exportable(model: nn.Module) -> None:
    """Refuse a model that is not prepared, still observes, or does not quantize."""
    found = quantizers(model)
    observing = [name for name, quantizer in found.items() if quantizer.observing]
    if observing:
        raise UnsupportedModelError(
            f"{len(observing)} of {len(found)} quantizers still observe ranges, "
            f"'{observing[0]}' first, so the exported ranges would change with the next batch",
            fix="end the calibration and call enable_quantization(model) before the export; "
            "'with calibrating(model):' ends by itself",
        )
    used = {name: quantizer for name, quantizer in found.items() if quantizer.quantizing}
    if not used:
        raise UnsupportedModelError(
            f"none of the {len(found)} quantizers is on, so the float model would be exported",
            fix=_CALIBRATE
            if not any(quantizer.initialised for quantizer in found.values())
            else "call enable_quantization(model) before the export",
        )
    blind = [name for name, quantizer in used.items() if not quantizer.initialised]
    if blind:
        raise uninitialised_error(blind)


def _checked_opset(opset: int | None, name: str, which: Exporter) -> int:
    if opset is None:
        return max(17, which.oldest)
    if not which.oldest <= opset <= MAX_OPSET:
        raise OptionError(
            f"opset {opset} cannot be written with the {name} exporter",
            fix=f"choose {which.oldest} to {MAX_OPSET}",
        )
    return opset


def _names(kind: str, given: Sequence[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    if given is None:
        return default
    if len(given) != len(default) or len(set(given)) != len(given):
        raise OptionError(
            f"{len(given)} {kind} names ({', '.join(given)}) were given for {len(default)} "
            f"{kind} tensors ({', '.join(default)})",
            fix=f"give one name for each {kind} tensor, each only once",
        )
    return tuple(given)


def _dynamic_axes(axes: Axes, inputs: Sequence[str], outputs: Sequence[str]) -> DynamicAxes:
    known = (*inputs, *outputs)
    named: dict[str, dict[int, str]] = {}
    for name, wanted in axes.items():
        if name not in known:
            raise OptionError(
                f"dynamic_axes names '{name}', which is neither input nor output",
                fix=near_matches(name, known),
            )
        if isinstance(wanted, Mapping):
            named[name] = dict(wanted)
        else:
            named[name] = {axis: f"{name}_dim_{axis}" for axis in wanted}
    return named


def _check_open_axes(made: Model, dynamic: DynamicAxes) -> None:
    """Refuse a file in which torch fixed axes that should be dynamic."""
    for tensor in made.graph.inputs:
        for axis in dynamic.get(tensor.name, ()):
            if isinstance(tensor.shape[axis], int):
                raise UnsupportedModelError(
                    f"torch fixed axis {axis} of input '{tensor.name}' to {tensor.shape[axis]}",
                    fix="give an example that is longer than 1 along this axis, and a model that "
                    "works with any length",
                )
