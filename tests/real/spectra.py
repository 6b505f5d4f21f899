"""Spectra that audio networks read."""

from __future__ import annotations

import numpy as np


def power(wave: np.ndarray, size: int, hop: int) -> np.ndarray:
    """|STFT|² with a Hann window, centred frames: [frames, size // 2 + 1]."""
    wave = np.pad(wave.astype(np.float64), size // 2, mode="reflect")
    window = np.hanning(size + 1)[:-1]
    count = 1 + (len(wave) - size) // hop
    frames = np.lib.stride_tricks.sliding_window_view(wave, size)[::hop][:count]
    found: np.ndarray = np.abs(np.fft.rfft(frames * window)) ** 2
    return found


def log_power(wave: np.ndarray, size: int, hop: int) -> np.ndarray:
    """log10 of the power, float32."""
    return np.log10(np.maximum(power(wave, size, hop), 1e-12)).astype(np.float32)


def _mel(hertz: np.ndarray) -> np.ndarray:
    """Slaney's scale: linear up to 1 kHz, logarithmic above."""
    above = 15 + 27 * np.log(np.maximum(hertz, 1e-9) / 1000) / np.log(6.4)
    return np.where(hertz < 1000, hertz * 3 / 200, above)


def mel_filters(rate: int, size: int, bands: int) -> np.ndarray:
    """Triangles of equal area on the mel scale: [size // 2 + 1, bands]."""
    grid = np.linspace(0, rate / 2, 20001)
    edges = np.interp(np.linspace(0, float(_mel(np.array(rate / 2))), bands + 2), _mel(grid), grid)
    bins = np.fft.rfftfreq(size, 1 / rate)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)


def mel(wave: np.ndarray, rate: int, size: int, hop: int, bands: int) -> np.ndarray:
    """Mel bands in dB below the loudest, mapped to -1 .. 1: [frames, bands]."""
    found = power(wave, size, hop) @ mel_filters(rate, size, bands)
    decibels = 10 * np.log10(np.maximum(found, 1e-10))
    decibels = np.maximum(decibels - decibels.max(), -80.0)
    return ((decibels + 40) / 40).astype(np.float32)
