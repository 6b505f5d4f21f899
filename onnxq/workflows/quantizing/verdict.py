"""Judges a quantized model beside the float one: its noise in optimised sessions, its latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.calibration.trials.trial import LOW_SQNR, SAMPLES, Noise, Trial, decibels
from onnxq.errors import OnnxqError
from onnxq.graph import Model
from onnxq.proof.difference import TensorDiff
from onnxq.proof.judging import ANYTHING
from onnxq.proof.prove import Proof
from onnxq.running.large_models import LARGE
from onnxq.running.sessions import Kind
from onnxq.workflows.convert import Conversion

if TYPE_CHECKING:
    from onnxq.running.samples import Feed

LOST = 1.0
"""Most dB that an optimised session may be worse than the reference session."""
TELLS = 6.0
"""Least SQNR in dB that tells a noisy session from a broken one: nothing but zeros has 0 dB."""
LABELS = 0.01
"""Largest share of labels by which an optimised session may differ more from the float model."""
_ANYTHING = replace(ANYTHING, max_labels=1.0)


def judged_by_noise(
    done: Conversion, trial: Trial, noise: Noise
) -> tuple[tuple[Proof, ...], list[str]]:
    """The proofs of `done`; those of optimised sessions judged by what the float model computes.

    Integer kernels round sums where the graph rounds products, and some networks amplify that
    beyond any fixed limit. They amplify the noise of quantization as much: an output that is as
    close to the float model as in the reference session is that of the same network. In a network
    that reads letters, most noise of a few words is that of the one letter that changed: there, it
    may be farther away by what chance makes.
    """
    proofs, notes = [], []
    for proof in done.proofs:
        kind = cast(Kind, proof.report.sessions[1])
        if not proof.passed and not proof.refused and kind != "reference":
            found = trial.noise(done.model, kind)
            outputs = tuple(_judged(output, noise, found) for output in proof.report.outputs)
            proof = replace(proof, report=replace(proof.report, outputs=outputs))
            if proof.passed:
                notes.append(
                    f"the {kind} session of onnxruntime rounds differently, and the network "
                    f"amplifies that: it is {found.sqnr:.1f} dB from the float model there, "
                    f"{noise.sqnr:.1f} dB in the reference session"
                )
        proofs.append(proof)
    return tuple(proofs), notes


def _judged(output: TensorDiff, noise: Noise, found: Noise) -> TensorDiff:
    """An output of an optimised session; any difference is tolerated if it is lost in the noise."""
    name = output.name
    if output.passed or name not in noise.shares.keys() | noise.labels.keys():
        return output
    if name in noise.labels:
        lost_in_noise = found.changed_share(name) <= noise.changed_share(name) + LABELS
    else:
        before, now = (decibels(each.shares[name]) for each in (noise, found))
        lost_in_noise = before >= TELLS and (
            now >= before - LOST
            or (now >= TELLS and _by_chance(noise.by_sample[name], found.by_sample[name]))
        )
    return replace(output, tolerance=_ANYTHING) if lost_in_noise else output


def _by_chance(before: Sequence[float], now: Sequence[float]) -> bool:
    r"""Whether samples that differ as these do make a session look worse that is not.

    Of each sample, d = now - 10^(LOST / 10) before is what it has too much. Their sum is off by
    sqrt(n) times their standard deviation; twice that is rare. A session that computes something
    else has too much in most samples, and their sum is many times that.
    """
    if not len(before) == len(now) >= SAMPLES:
        return False
    more = np.asarray(now) - 10 ** (LOST / 10) * np.asarray(before)
    return bool(more.sum() <= 2 * math.sqrt(more.size) * more.std(ddof=1))


def low_note(noise: Noise) -> list[str]:
    """What to do about an output that is far from the float model's."""
    low = {name: decibels(s) for name, s in noise.shares.items() if decibels(s) < LOW_SQNR}
    if not low:
        return []
    worst = min(low, key=low.__getitem__)
    more = f", and {len(low) - 1} more below {LOW_SQNR:g} dB" if len(low) > 1 else ""
    return [
        f"'{worst}' has {low[worst]:.1f} dB of signal to noise{more}: test what the network is "
        f"for, or give --target-sqnr {LOW_SQNR + 5:g}, which keeps the worst layers float"
    ]


def latency(model: Model, quantized: Model, kept: list[Feed]) -> tuple[float | None, list[str]]:
    """The time of the quantized model as a multiple of the float one's, and a note on it.

    It is that of sessions as users have them, which hold all weights in memory.
    """
    from onnxq.workflows.bench import bench  # few ask for it

    if _weights(model) >= LARGE:
        return None, [
            "the latency is not measured: in onnxruntime's default session the weights take "
            f"{4 * _weights(model) / 1e9:.1f} GB of memory. 'onnxq bench' measures it"
        ]
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


def _weights(model: Model) -> int:
    """The number of constants that nodes read."""
    read = (tensor for node in model.nodes() for tensor in node.inputs)
    sizes = {id(t): math.prod(t.shape) for t in read if isinstance(t, gs.Constant)}
    return sum(sizes.values())
