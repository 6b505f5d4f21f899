"""Optimised sessions judged by noise, and latencies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.backend import chosen_backend
from onnxq.calibration.trials.trial import Noise, Trial
from onnxq.graph import from_proto
from onnxq.proof.difference import Tolerance
from onnxq.workflows.convert import convert
from onnxq.workflows.quantizing import verdict
from onnxq.workflows.quantizing.verdict import judged_by_noise, latency, low_note
from tests.models.build import parse, quantize
from tests.models.networks import NETWORKS, quantized, samples

STRICT = Tolerance(max_steps=0.0, max_moved=0.0, max_relative=0.0, max_absolute=0.0)


def test_a_session_as_close_to_float_as_the_reference_one_passes() -> None:
    backend = chosen_backend("onnxruntime", None)
    source = quantized("resnet", backend)
    done = convert(source, backend, data=samples("resnet"))
    # As if the network had amplified the differences of kernels beyond every limit.
    proofs = tuple(
        replace(
            proof,
            report=replace(
                proof.report,
                outputs=tuple(
                    replace(o, tolerance=STRICT, max=0.5, moved=0.5) for o in proof.report.outputs
                ),
            ),
        )
        for proof in done.proofs
    )
    done.proofs = proofs
    trial = Trial(from_proto(NETWORKS["resnet"]()), samples("resnet"))
    noise = trial.noise(source)
    judged, notes = judged_by_noise(done, trial, noise)
    passed = {proof.report.sessions[1]: proof.passed for proof in judged}
    assert passed == {"reference": False, "deployed": True}  # the reference session is the proof
    assert len(notes) == 1
    # Where quantization has left little of the outputs, noise cannot tell a broken session.
    ruined = replace(noise, error={name: 0.8 * power for name, power in noise.signal.items()})
    lost, notes = judged_by_noise(done, trial, ruined)
    assert not any(proof.passed for proof in lost)
    assert notes == []
    none = {name: [0.0] * len(each) for name, each in noise.by_sample.items()}
    exact = replace(noise, error=dict.fromkeys(noise.error, 0.0), by_sample=none)
    worse, notes = judged_by_noise(done, trial, exact)
    assert not any(proof.passed for proof in worse)
    assert notes == []


@pytest.mark.parametrize(
    ("before", "now", "chance"),
    [
        ([1.0] * 8, [1.2] * 8, True),  # less than a decibel
        ([1.0] * 8, [1.3] * 8, False),  # all of them are worse: that is no chance
        ([1.0] * 8, [1.3, 1.5] * 4, False),
        ([0.1] * 8, [0.1] * 7 + [4.0], True),  # one of them changed
        ([0.1] * 7, [0.1] * 6 + [4.0], False),  # too few to tell
    ],
)
def test_worse_by_chance(before: list[float], now: list[float], chance: bool) -> None:
    assert verdict._by_chance(before, now) == chance


def test_what_to_do_about_noisy_outputs() -> None:
    assert low_note(Noise({"y": 1.0}, {"y": 1e-3})) == []
    (note,) = low_note(Noise({"y": 1.0, "z": 1.0, "w": 1.0}, {"y": 0.1, "z": 0.02, "w": 1e-4}))
    assert note.startswith("'y' has 10.0 dB of signal to noise, and 1 more below 20 dB")
    assert "--target-sqnr 25" in note


def test_labels_may_differ_from_float_as_often_as_in_the_reference_session() -> None:
    """A near tie falls to either side, in any session."""
    text = "g (float[64, 4] x) => (int64[64] k) { k = ArgMax<axis = 1, keepdims = 0>(x) }"
    source = quantize(parse(text), "x", qtype="uint8", scale=np.float32(1.0), zero_point=128)
    values = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    done = convert(source, "onnxruntime", data=[{"x": values}])
    done.proofs = tuple(
        replace(proof, report=replace(proof.report, outputs=(replace(output, max=1.0, moved=0.1),)))
        for proof in done.proofs
        for output in proof.report.outputs
    )
    trial = Trial(parse(text), [{"x": values}])
    noise = trial.noise(source)
    assert noise.changed_share("k") > 0.1  # so coarse that many are ties

    def passed(noise: Noise) -> dict[str, bool]:
        judged, _ = judged_by_noise(done, trial, noise)
        return {proof.report.sessions[1]: proof.passed for proof in judged}

    assert passed(noise) == {"reference": False, "deployed": True}
    assert passed(replace(noise, changed={"k": 0})) == {"reference": False, "deployed": False}


def test_latency_of_a_model_beside_itself() -> None:
    model = from_proto(NETWORKS["conv1d"]())
    ratio, notes = latency(model, model, samples("conv1d", 2))
    assert ratio is not None
    assert np.isfinite(ratio)
    assert bool(notes) == (ratio > 1)


def test_the_latency_of_a_large_model_is_left_to_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "LARGE", 10)
    model = from_proto(NETWORKS["conv1d"]())
    ratio, notes = latency(model, model, samples("conv1d", 2))
    assert ratio is None
    assert "'onnxq bench'" in notes[0]
