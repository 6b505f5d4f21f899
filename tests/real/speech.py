"""Speech by espeak-ng: its library and voices are in the wheel of espeakng-loader."""

from __future__ import annotations

import ctypes
import functools

import numpy as np

from tests.models import real_models
from tests.real.task import Missing

RATE = 16000

VOICES = ("en", "en+f1", "en-us", "en+m3")
"""Voices without breath: that noise is another one in every process."""

SENTENCES = (
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "It is easy to tell the depth of a well.",
    "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.",
    "The juice of lemons makes fine punch.",
    "The box was thrown beside the parked truck.",
    "The hogs were fed chopped corn and garbage.",
    "Four hours of steady work faced us.",
    "A large size in stockings is hard to sell.",
    "The boy was there when the sun rose.",
    "A rod is used to catch pink salmon.",
    "The source of the huge river is the clear spring.",
    "Kick the ball straight and follow through.",
    "Help the woman get back to her feet.",
    "A pot of tea helps to pass the evening.",
)

_SYNCHRONOUS, _CHARACTERS, _UTF8 = 2, 1, 1
_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


@functools.cache
def _library() -> tuple[ctypes.CDLL, int]:
    folder = real_models.unpacked("espeakng-loader==0.2.4")
    if isinstance(folder, str):
        raise Missing(folder)
    home = folder / "espeakng_loader"
    try:
        library = ctypes.CDLL(str(home / "libespeak-ng.so"))
    except OSError as error:
        raise Missing(f"espeak-ng does not load: {error}") from error
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, str(home / "espeak-ng-data").encode(), 0)
    if rate <= 0:
        raise Missing("espeak-ng does not start")
    return library, rate


@functools.cache
def spoken(text: str, voice: str = "en", speed: int = 160) -> np.ndarray:
    """A text as float32 samples at 16 kHz."""
    library, rate = _library()
    parts: list[np.ndarray] = []

    def take(samples: ctypes._Pointer[ctypes.c_short], count: int, _: int) -> int:
        if samples and count:
            parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    kept = _CALLBACK(take)  # alive until the synthesis is over
    library.espeak_SetSynthCallback(kept)
    library.espeak_SetVoiceByName(voice.encode())
    library.espeak_SetParameter(1, speed, 0)
    data = text.encode()
    library.espeak_Synth(data, len(data) + 1, 0, _CHARACTERS, 0, _UTF8, None, None)
    library.espeak_Synchronize()
    if not parts:
        raise Missing("espeak-ng made no sound")
    wave = np.concatenate(parts).astype(np.float32) / 32768
    times = np.arange(int(len(wave) * RATE / rate)) / RATE
    return np.interp(times, np.arange(len(wave)) / rate, wave).astype(np.float32)


def noise(count: int, seed: int, level: float = 0.02) -> np.ndarray:
    """White noise."""
    return (level * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def clip(number: int, seconds: float, noisy: float = 0.0) -> np.ndarray:
    """Sentences from number `number` on, as many as fill the time, with noise on top."""
    wanted, parts, length = int(seconds * RATE), [], 0
    while length < wanted:
        parts.append(spoken(SENTENCES[number % len(SENTENCES)], VOICES[number % len(VOICES)]))
        length += len(parts[-1])
        number += 1
    wave = np.concatenate(parts)[:wanted]
    return wave + noise(wanted, number, noisy) if noisy else wave
