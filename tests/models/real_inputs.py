"""Inputs that real networks accept: shapes, and random values of a plausible kind."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from onnxq.running.ort_tensors import TensorSpec

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "ocr-det": {"x": (1, 3, 64, 96)},
    "ocr-rec": {"x": (1, 3, 48, 96)},
    "ocr-cls": {"x": (1, 3, 48, 192)},
    "orientation": {"x": (1, 3, 224, 224)},
    "magika": {"bytes": (2, 2048)},
    "vad": {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
    "vad-16k": {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
    "vad-16k-sequence": {"input": (3, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    "vad-half": {"input": (1, 576), "state": (2, 1, 128)},
    "vad-ifless": {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
    "vad-openvino": {"input": (1, 576), "state": (2, 1, 128)},
    "captcha": {"input1": (1, 1, 64, 96)},
    "captcha-det": {"images": (1, 3, 416, 416)},
    "captcha-dynamic-int8": {"input1": (1, 1, 64, 96)},
    "aecmos-1": {"input": (1, 3, 40, 160), "h0": (4, 1, 64)},
    "aecmos-2": {"input": (1, 3, 40, 160), "h0": (4, 1, 64)},
    "aecmos-3": {"input": (1, 3, 40, 160), "h0": (4, 1, 96)},
    "dnsmos-bak-ovr": {"input_1": (1, 901, 161)},
    "dnsmos-v8": {"input_1": (1, 900, 120)},
    "dnsmos-sig": {"input_1": (1, 901, 161)},
    "dnsmos-sig-bak-ovr": {"input_1": (1, 144160)},
    "pdnsmos": {"input_1": (1, 144160)},
    "plcmos": {"degraded_audio": (1, 1, 60, 257), "rater_embed": (1, 64)},
    "vad-faster-whisper": {"input": (3, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    "nudity-det": {"images": (1, 3, 320, 320)},
    "nsfw": {"input:0": (1, 224, 224, 3)},
    "wake-melspectrogram": {"input": (1, 12640)},
    "wake-embedding": {"input_1": (1, 76, 32, 1)},
    "wake-vad": {"input": (1, 512), "h": (2, 1, 64), "c": (2, 1, 64)},
    "turn-int8": {"input_features": (1, 80, 800)},
    "pitch": {"serving_default_input_2:0": (1, 43844, 1)},
    "pitch-swift": {"audio": (1, 16000)},
    "denoise-16k": {"input": (1, 40, 161)},
    "denoise-48k": {"input": (1, 40, 513)},
    "hebrew": {"input_1": (1, 80)},
    "arabic": {"char_inputs": (1, 32), "diac_inputs": (1, 32)},
    "ocr6-det": {"x": (1, 3, 160, 160)},
    "ocr6-rec": {"x": (1, 3, 48, 320)},
    "ocr-seal-det": {"x": (1, 3, 160, 160)},
    "table": {"x": (1, 3, 488, 488)},
}
"""Shape of every input that does not state its own. Audio wants enough samples for its filters."""

FIXED: dict[tuple[str, str], float | list[int]] = {
    ("arabic", "input_lengths"): [32],
    ("pitch-swift", "fmin"): 50.0,
    ("pitch-swift", "fmax"): 1000.0,
    **{(name, "sr"): 16000 for name in ("vad", "vad-16k", "vad-ifless", "wake-vad")},
}
"""Inputs that say how the others are meant."""

CODES = {"magika": 256, "hebrew": 40, "arabic": 15}
"""Networks that read codes of characters: how many there are."""


def random_feed(name: str, inputs: Iterable[TensorSpec], seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs for a network: good for tests of a tool, never for ranges users rely on."""
    rng = np.random.default_rng(seed)
    feed: dict[str, np.ndarray] = {}
    for spec in inputs:
        shape = SHAPES.get(name, {}).get(spec.name, tuple(spec.shape))
        if (name, spec.name) in FIXED:
            feed[spec.name] = np.array(FIXED[name, spec.name], spec.dtype)
        elif name in CODES:
            feed[spec.name] = rng.integers(0, CODES[name], shape).astype(spec.dtype)
        else:
            feed[spec.name] = (0.3 * rng.standard_normal(shape)).astype(spec.dtype)
    return feed
