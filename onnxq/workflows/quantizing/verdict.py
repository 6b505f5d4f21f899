"""Judges a quantized model beside the float one: its noise in optimised sessions, its latency."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from onnxq.calibration.trial import Noise, Trial
from onnxq.errors import OnnxqError
from onnxq.graph import Model
from onnxq.proof.prove import ANYTHING, Proof
from onnxq.running.sessions import Kind
from onnxq.workflows.bench import bench
from onnxq.workflows.convert import Conversion

if TYPE_CHECKING:
    from onnxq.running.samples import Feed

LOST = 1.0
"""Most dB that an optimised session may be worse than the reference session."""


def judged_by_noise(
    done: Conversion, trial: Trial, noise: Noise
) -> tuple[tuple[Proof, ...], list[str]]:
    """The proofs of `done`; those of optimised sessions judged by what the float model computes.

    Integer kernels round sums where the graph rounds products, and some networks amplify that
    beyond any fixed limit. They amplify the noise of quantization as much: a session that is as
    close to the float model as the reference session computes the same network.
    """
    proofs, notes = [], []
    for proof in done.proofs:
        kind = cast(Kind, proof.report.sessions[1])
        if not proof.passed and not proof.refused and kind != "reference":
            found = trial.noise(done.model, kind).sqnr
            if found >= noise.sqnr - LOST:
                outputs = tuple(replace(o, tolerance=ANYTHING) for o in proof.report.outputs)
                proof = replace(proof, report=replace(proof.report, outputs=outputs))
                notes.append(
                    f"the {kind} session of onnxruntime rounds differently, and the network "
                    f"amplifies that: it is {found:.1f} dB from the float model there, "
                    f"{noise.sqnr:.1f} dB in the reference session"
                )
        proofs.append(proof)
    return tuple(proofs), notes


def latency(model: Model, quantized: Model, kept: list[Feed]) -> tuple[float | None, list[str]]:
    """The time of the quantized model as a multiple of the float one's, and a note on it."""
    both = {"float": model, "quantized": quantized}
    try:
        found = bench(both, kept or None, seconds=2.0, profile=False).models[1]
    except OnnxqError as error:
        return None, [f"the latency is not measured: {error.what}"]
    ratio = None if found.ratio is None else found.ratio.median
    if ratio is None or ratio <= 1:
        return ratio, []
    return ratio, [
        f"on this machine the quantized model takes {ratio:.2f} x the time of the float one: "
        "'onnxq bench' shows what runs in float"
    ]
