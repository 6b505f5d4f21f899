"""From the trained model to a target's files in one call, proven from torch to the last file.

torch, eval mode  =  canonical ONNX in onnxruntime  =  the target's files, read back
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from onnxq.backend import Backend
from onnxq.disk.file_set import check_folder
from onnxq.errors import OptionError, VerifyError
from onnxq.parsing.argument_types import PATH, takes
from onnxq.proof.judging import fault
from onnxq.proof.prove import Proof
from onnxq.workflows.convert import Conversion, convert
from torch_bridge.export import Axes, Options, export_recorded, unwrapped
from torch_bridge.exporting.proof import prove_export
from torch_bridge.state import quantizers


@takes(q=nn.Module, args=(Sequence, torch.Tensor), folder=PATH)
@takes(backend=(str, Backend, None), variant=(str, None))
def deploy(
    q: nn.Module,
    args: Sequence[Any] | torch.Tensor,
    folder: str | os.PathLike[str],
    *,
    kwargs: Mapping[str, Any] | None = None,
    backend: str | Backend | None = None,
    variant: str | None = None,
    allow_requantize: bool = False,
    stem: str = "model",
    exporter: Literal["torchscript", "dynamo"] = "torchscript",
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Axes | None = None,
    opset: int | None = None,
    strict: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Conversion:
    """Write `<stem>.onnx` (canonical) and the target's files into `folder`.

    The files are compared on `args`, which should therefore be real data: noise may saturate.

    Args:
        q: the result of `prepare`, with quantization enabled.
        args: positional arguments of one call.
        folder: the folder of the files.
        kwargs: keyword arguments of that call.
        backend: the target; by default the one the model was prepared for.
        variant: see `onnxq.convert`.
        allow_requantize: see `onnxq.convert`; the proof fails if the change is too large.
        stem: file names start with it.
        exporter: see `export`.
        input_names: see `export`.
        output_names: see `export`.
        dynamic_axes: see `export`.
        opset: see `export`.
        strict: raise VerifyError if a proof fails, before the target's files are written.
        progress: called with a few words before each step.

    Returns:
        The conversion; the last of its proofs is the comparison with torch.
    """
    model = unwrapped(q)
    target = getattr(model, "onnxq_backend", None) if backend is None else backend
    if target is None:
        raise OptionError(
            f"{type(model).__name__} does not say which backend it was prepared for",
            fix="prepare it with torch_bridge.prepare(model, backend=...), or give backend=...",
        )
    check_folder(Path(folder))
    progress("exporting")
    file = Path(folder) / f"{stem}.onnx"
    options = Options(exporter, input_names, output_names, dynamic_axes or {}, opset)
    exported = export_recorded(model, args, kwargs, file, options, results=True)
    progress("comparing torch with onnxruntime")
    report = prove_export(exported.run, file, exported.feeds)
    report = replace(report, notes=(*exported.notes, *report.notes))
    conversion = convert(
        exported.model,
        target,
        variant=variant,
        allow_requantize=allow_requantize,
        data=[exported.feeds],
        stem=stem,
        progress=progress,
    )
    conversion.proofs += (Proof(f"{file.name} (torch)", report),)
    if strict and not conversion.proven:
        raise _unproven(conversion, model)
    conversion.save(Path(folder))
    conversion.files.insert(0, file)
    return conversion


def _unproven(conversion: Conversion, model: nn.Module) -> VerifyError:
    failed = next(proof for proof in conversion.proofs if not proof.passed)
    if failed.refused:
        return VerifyError(
            f"{failed.what}: {failed.refused}",
            fix="look at the notes of deploy(..., strict=False), which give the reason",
        )
    found = fault(failed.report)
    if found is not None:
        return VerifyError(f"{failed.what}: {found[0]}", fix=found[1] + _hint(model))
    worst = failed.report.worst
    assert worst is not None
    first = next((layer for layer in failed.report.layers if layer.moved), None)
    where = (
        f"; the first quantizer to differ is '{first.node}' ({first.moved:.3%} moved)"
        if first
        else ""
    )
    return VerifyError(
        f"{failed.what}: '{worst.node or worst.name}' is off by {worst.max:.3g} "
        f"({worst.unit}), {worst.moved:.2%} of its elements moved{where}",
        fix="look at the proofs of deploy(..., strict=False), whose reports list every quantizer"
        + _hint(model),
    )


def _hint(model: nn.Module) -> str:
    """What may be wrong with algorithms that are not those of torch_bridge."""
    every = quantizers(model).values()
    own = {q.algorithm for q in every if not type(q).__module__.startswith("torch_bridge.")}
    if not own:
        return ""
    names = " and ".join(f"'{name}'" for name in sorted(own))
    return (
        f". Look at {names}: in eval mode quantize() must compute what the file does, which is "
        "clamp(round(x / scale) + zero_point) with the scale that refresh() leaves; other changes "
        "of the tensor belong in transform()"
    )
