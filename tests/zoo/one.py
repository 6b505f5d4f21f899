"""Prepares, calibrates, trains and deploys one architecture, and tells how it went."""

from __future__ import annotations

import tempfile
import time
import warnings
from typing import Any

import torch

import onnxq
import torch_bridge as tb
from onnxq.proof.prove import Proof
from tests.zoo.architectures import ARCHITECTURES
from tests.zoo.case import Case
from tests.zoo.codes import products_on_codes
from torch_bridge.capture.flat_call import leaves
from torch_bridge.exporting.exporters import EXPORTERS

STEPS = 3


def run(library: str, name: str, backend: str) -> dict[str, Any]:
    """The row of one architecture; 'failed' is the error, and the step it came in."""
    row: dict[str, Any] = {"library": library, "name": name, "backend": backend}
    torch.manual_seed(0)
    step = "make"
    started = time.perf_counter()
    try:
        case = ARCHITECTURES[library][name]()
        _settle(case)
        step = "prepare"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            q = tb.prepare(case.model.train(), backend, case.args, case.kwargs)
        report = q.onnxq_report
        left = [p for p in report.products if p.float_reason]
        row |= {
            "capture": report.capture,
            "products": len(report.products),
            "quantized": len(report.products) - len(left),
            "float": sorted({p.float_reason for p in left})[:3],
            "leaves": [str(leaf)[:200] for leaf in report.leaves][:5],
            "cautions": report.cautions,
            "prepare seconds": round(time.perf_counter() - started, 1),
        }
        step = "calibrate"
        q.eval()
        with tb.calibrating(q), torch.no_grad():
            q(*case.args, **case.kwargs)
        tb.enable_quantization(q, uninitialised="skip")
        step = "train"
        _train(q.train(), case)
        q.eval()
        row["exporters"] = {each: _deployed(q, case, each) for each in EXPORTERS}
    except Exception as error:
        row["failed"] = f"{step}: {_in_words(error)}"
    row["seconds"] = round(time.perf_counter() - started, 1)
    return row


def _deployed(q: torch.nn.Module, case: Case, exporter: Any) -> dict[str, Any]:
    """The proofs of a deployment, and the products of its canonical file."""
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = tb.deploy(
                q,
                case.args,
                folder,
                kwargs=case.kwargs,
                strict=False,
                exporter=exporter,
            )
            count, in_float = products_on_codes(
                onnxq.load(done.files[0]),
                of_activations="MatMul" in done.backend.placement.inputs,
            )
    except Exception as error:
        return {"failed": _in_words(error)}
    failed = [_told(proof) for proof in done.proofs if not proof.passed]
    return {
        "proven": done.proven, "unproven": failed, "products": count,
        "quantized": count - len(in_float), "float": in_float[:3],
    }  # fmt: skip


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _told(proof: Proof) -> str:
    worst = proof.report.worst
    if proof.refused or worst is None:
        return f"{proof.what}: {proof.refused}"
    return f"{proof.what}: '{worst.name}' is off by {worst.max:.3g} ({worst.unit})"


def _settle(case: Case) -> None:
    """Give batch norms the statistics of the data; without them values grow from layer to layer."""
    norms = [
        m for m in case.model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)
    ]
    if not norms:
        return
    case.model.train()
    for norm in norms:
        norm.momentum = 0.5
    with torch.no_grad():
        for _ in range(6):
            case.model(*case.args, **case.kwargs)


def _train(q: torch.nn.Module, case: Case) -> None:
    optimizer = torch.optim.SGD(q.parameters(), lr=1e-4)
    for _ in range(STEPS):
        optimizer.zero_grad()
        results = [t for _, t in leaves(q(*case.args, **case.kwargs)) if t.requires_grad]
        sum(t.square().mean() for t in results).backward()  # type: ignore[union-attr]
        if not any(p.grad is not None for p in q.parameters()):
            raise RuntimeError("no parameter has a gradient")
        optimizer.step()
