"""Spectra of tones."""

from __future__ import annotations

import numpy as np

from tests.real import spectra

RATE = 16000
TONE = np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE)


def test_a_tone_is_in_its_bin() -> None:
    found = spectra.power(TONE, 320, 160)
    assert found.shape == (101, 161)
    assert (found[2:-2].argmax(axis=1) == 1000 * 320 // RATE).all()


def test_mel_bands() -> None:
    filters = spectra.mel_filters(RATE, 512, 40)
    assert filters.shape == (257, 40)
    assert (filters >= 0).all()
    assert (filters.max(axis=0) > 0).all()
    shown = spectra.mel(TONE, RATE, 512, 256, 40)
    assert shown.max() == 1.0
    assert shown.min() >= -1.0
