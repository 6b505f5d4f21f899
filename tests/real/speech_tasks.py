"""Sound: speech told from silence, quality rated, wake words heard, pitch followed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from onnxq.running import sessions
from tests.models import real_models
from tests.real import spectra, speech
from tests.real.speech import RATE, clip, noise, spoken
from tests.real.task import Feed, Figure, Run, Task

RATINGS_WITHIN = 0.05
"""Opinion scores go from 1 to 5; two people differ by far more."""
ECHOES_WITHIN = 0.1
"""Those of echoes come from two recurrent layers, and single ones move farther: 0.09 at 48 dB."""


# -- speech or not ----------------------------------------------------------------------------


def _sounds(first: int, count: int) -> list[tuple[np.ndarray, bool]]:
    """Clips of two seconds: speech and, as many, noise or silence."""
    speech = [(clip(first + i, 2.0, 0.001 * (i % 3)), True) for i in range(count)]
    still = [(noise(2 * RATE, first + i, 0.002 * (i % 5)), False) for i in range(count)]
    return [*speech, *still]


def _frames(wave: np.ndarray, size: int, before: int) -> np.ndarray:
    """Frames of `size` samples, each after the last `before` samples of the frame before it."""
    count = len(wave) // size
    padded_wave = np.concatenate([np.zeros(before, np.float32), wave])
    return np.stack([padded_wave[i * size : i * size + size + before] for i in range(count)])


Stream = Callable[[Run, np.ndarray], tuple[list[Feed], np.ndarray]]
"""Feeds of a clip, and the probability of speech in each of its frames."""


def _one_by_one(states: dict[str, tuple[str, tuple[int, ...]]], before: int, rate: bool) -> Stream:
    """Networks that take a frame and their own state; `states`: input -> output and shape."""

    def stream(run: Run, wave: np.ndarray) -> tuple[list[Feed], np.ndarray]:
        held = {name: np.zeros(shape, np.float32) for name, (_, shape) in states.items()}
        feeds, found = [], []
        for frame in _frames(wave, 512, before):
            feed: Feed = {"input": frame[None].astype(np.float32), **held}
            if rate:
                feed["sr"] = np.array(RATE, np.int64)
            made = run(feed)
            feeds.append(feed)
            held = {name: made[output] for name, (output, _) in states.items()}
            found.append(float(made["output"].ravel()[0]))
        return feeds, np.array(found)

    return stream


def _at_once(run: Run, wave: np.ndarray) -> tuple[list[Feed], np.ndarray]:
    zero = np.zeros((1, 1, 128), np.float32)
    feed = {"input": _frames(wave, 512, 64).astype(np.float32), "h": zero, "c": zero}
    return [feed], next(iter(run(feed).values())).ravel()


def speech_or_not(stream: Stream) -> Task:
    """Clips with speech have it in most frames, clips without in few."""

    def right(run: Run) -> list[float]:
        return [
            bool((stream(run, wave)[1].mean() > 0.5) == speech) for wave, speech in _sounds(8, 8)
        ]

    def samples(run: Run) -> list[Feed]:
        feeds = [f for wave, _ in _sounds(0, 4) for f in stream(run, wave)[0]]
        # Neighbours are alike, and a trial keeps the first few samples: mix them.
        mixed = np.random.default_rng(0).permutation(len(feeds))
        return [feeds[i] for i in mixed[:64]]

    return Task("spoken sentences and noise", samples, Figure("clips with speech told", right))


_V5 = {"state": ("stateN", (2, 1, 128))}
_V4 = {"h": ("hn", (2, 1, 64)), "c": ("cn", (2, 1, 64))}


# -- ratings ----------------------------------------------------------------------------------


def rating(
    feed: Callable[[np.ndarray], Feed], seconds: float = 9.01, within: float = RATINGS_WITHIN
) -> Task:
    """Ratings of sentences, clean and with more and more noise."""

    def rated(run: Run) -> list[float]:
        waves = [clip(8 + i, seconds, level) for i, level in enumerate((0, 0.01, 0.05, 0.2))]
        return [float(v) for wave in waves for v in next(iter(run(feed(wave)).values())).ravel()]

    def samples(_: Run) -> list[Feed]:
        levels = (0, 0.003, 0.02, 0.1, 0.005, 0.3, 0.001, 0.05)
        return [feed(clip(i, seconds, level)) for i, level in enumerate(levels)]

    figure = Figure("mean rating, 1 to 5", rated, within=within)
    return Task("spoken sentences with noise", samples, figure)


def _wave(wave: np.ndarray) -> Feed:
    return {"input_1": wave[None]}


def _log_power(wave: np.ndarray) -> Feed:
    return {"input_1": spectra.log_power(wave, 320, 160)[None, :901]}


def _mel(wave: np.ndarray) -> Feed:
    return {"input_1": spectra.mel(wave[:-160], RATE, 321, 160, 120)[None, :900]}


def _lost_packets(wave: np.ndarray) -> Feed:
    shown = np.log(np.maximum(spectra.power(wave, 512, 256), 1e-12)) / 20
    embedding = np.random.default_rng(0).standard_normal((1, 64))
    return {
        "degraded_audio": shown[None, None].astype(np.float32),
        "rater_embed": embedding.astype(np.float32),
    }


def _echo(units: int) -> Callable[[np.ndarray], Feed]:
    def feed(wave: np.ndarray) -> Feed:
        far, near = clip(3, len(wave) / RATE), wave
        mixed = near + 0.4 * far
        parts = [spectra.mel(w, RATE, 512, 256, 160) for w in (far, mixed, near)]
        return {"input": np.stack(parts)[None], "h0": np.zeros((4, 1, units), np.float32)}

    return feed


# -- wake words -------------------------------------------------------------------------------


@functools.cache
def _float(name: str) -> sessions.Session:
    return sessions.reference(real_models.path_of(name))


def _mel_frames(wave: np.ndarray) -> np.ndarray:
    """The frames that the networks of openwakeword read: it multiplies samples by 32768."""
    feed = {"input": (wave * 32767)[None].astype(np.float32)}
    (found,) = _float("wake-melspectrogram").run(feed).values()
    return found.reshape(-1, 32) / 10 + 2


def _embeddings(wave: np.ndarray) -> np.ndarray:
    frames = _mel_frames(wave)
    windows = [frames[i : i + 76] for i in range(0, len(frames) - 75, 8)]
    stacked = np.stack(windows)[..., None].astype(np.float32)
    (found,) = _float("wake-embedding").run({"input_1": stacked}).values()
    return found.reshape(-1, 96)


def _said(text: str, voice: str, speed: int) -> np.ndarray:
    still = noise(2 * RATE, len(text), 0.001)
    return np.concatenate([still, spoken(text, voice, speed), still[: RATE // 2]])


VOICES = [(v, s) for v in (*speech.VOICES, "en-us+f4") for s in (130, 160)]
OTHERS = ("The birch canoe slid on the smooth planks", "Good morning", "Forty two", "a letter")


def wake_word(phrase: str, name: str, length: int) -> Task:
    """The best score in a clip, for clips with the phrase and clips without."""

    def windows(text: str, voice: str, speed: int) -> list[Feed]:
        rows = _embeddings(_said(text, voice, speed))
        parts = [rows[i : i + length] for i in range(max(len(rows) - length + 1, 1))]
        whole = [np.pad(p, ((length - len(p), 0), (0, 0)), mode="edge") for p in parts]
        return [{name: p[None].astype(np.float32)} for p in whole]

    def best(run: Run, *said: object) -> float:
        return max(float(next(iter(run(f).values())).max()) for f in windows(*said))  # type: ignore[arg-type]

    def scores(run: Run) -> list[float]:
        own = [best(run, phrase, *voice) for voice in VOICES[1::2]]
        return own + [best(run, text, *VOICES[0]) for text in OTHERS]

    def samples(_: Run) -> list[Feed]:
        own = [f for voice in VOICES[::2] for f in windows(phrase, *voice)[-6:]]
        return own + [f for text in OTHERS for f in windows(text, *VOICES[2])[-3:]]

    return Task("spoken phrases", samples, Figure("mean score, 0 to 1", scores, within=0.1))


def _embedding_samples(_: Run) -> Sequence[Feed]:
    frames = [_mel_frames(clip(i, 2.0)) for i in range(16)]
    return [{"input_1": f[None, 20:96, :, None].astype(np.float32)} for f in frames]


def _mel_samples(_: Run) -> Sequence[Feed]:
    return [{"input": (clip(i, 0.79) * 32767)[None].astype(np.float32)} for i in range(16)]


# -- noise and pitch --------------------------------------------------------------------------


def denoiser(size: int, hop: int) -> Task:
    """Features of noisy speech."""

    def samples(_: Run) -> list[Feed]:
        waves = [clip(i, 2.0, 0.02 * (1 + i % 3)) for i in range(8)]
        return [{"input": spectra.log_power(w, size, hop)[None]} for w in waves]

    return Task("spoken sentences with noise", samples)


def tone(hertz: float, seconds: float, rate: int) -> np.ndarray:
    """A tone with four overtones."""
    time = np.arange(int(seconds * rate)) / rate
    parts = [np.sin(2 * np.pi * hertz * k * time) / k for k in range(1, 6)]
    return (0.2 * np.sum(parts, axis=0)).astype(np.float32)


def _pitch_feed(hertz: float) -> Feed:
    limits = {"fmin": np.float32(46.875), "fmax": np.float32(2093.75)}
    return {"audio": tone(hertz, 1.0, RATE)[None], **{k: np.array(v) for k, v in limits.items()}}


def pitch_swift() -> Task:
    """The pitch of tones, within half a semitone."""
    tested = [80 * 2 ** (i / 6) for i in range(20)]

    def right(run: Run) -> list[float]:
        found = [float(np.median(run(_pitch_feed(h))["pitch"])) for h in tested]
        return [abs(np.log2(f / h)) < 1 / 24 for f, h in zip(found, tested, strict=True)]

    def samples(_: Run) -> list[Feed]:
        return [_pitch_feed(85 * 2 ** (i / 5)) for i in range(16)]

    return Task("tones", samples, Figure("tones with the right pitch", right, 1))


def notes() -> Task:
    """Tones for a transcriber of music."""

    def samples(_: Run) -> list[Feed]:
        waves = [tone(110 * 2 ** (i / 4), 43844 / 22050, 22050)[:43844] for i in range(8)]
        return [{"serving_default_input_2:0": w[None, :, None]} for w in waves]

    return Task("tones", samples)


TASKS: dict[str, Callable[[], Task]] = {
    "vad": lambda: speech_or_not(_one_by_one(_V5, 64, rate=True)),
    "vad-16k": lambda: speech_or_not(_one_by_one(_V5, 64, rate=True)),
    "vad-ifless": lambda: speech_or_not(_one_by_one(_V5, 64, rate=True)),
    "vad-half": lambda: speech_or_not(_one_by_one(_V5, 64, rate=False)),
    "vad-openvino": lambda: speech_or_not(_one_by_one(_V5, 64, rate=False)),
    "wake-vad": lambda: speech_or_not(_one_by_one(_V4, 0, rate=True)),
    "vad-16k-sequence": lambda: speech_or_not(_at_once),
    "vad-faster-whisper": lambda: speech_or_not(_at_once),
    "dnsmos-sig-bak-ovr": lambda: rating(_wave),
    "pdnsmos": lambda: rating(_wave),
    "dnsmos-bak-ovr": lambda: rating(_log_power),
    "dnsmos-sig": lambda: rating(_log_power),
    "dnsmos-v8": lambda: rating(_mel),
    "plcmos": lambda: rating(_lost_packets, 4.0),
    "aecmos-1": lambda: rating(_echo(64), 4.0, ECHOES_WITHIN),
    "aecmos-2": lambda: rating(_echo(64), 4.0, ECHOES_WITHIN),
    "aecmos-3": lambda: rating(_echo(96), 4.0, ECHOES_WITHIN),
    "wake-melspectrogram": lambda: Task("spoken sentences", _mel_samples),
    "wake-embedding": lambda: Task("spoken sentences", _embedding_samples),
    "wake-alexa": lambda: wake_word("Alexa", "onnx::Flatten_0", 16),
    "wake-jarvis": lambda: wake_word("Hey Jarvis", "x.1", 16),
    "wake-mycroft": lambda: wake_word("Hey Mycroft", "onnx::Flatten_0", 16),
    "wake-rhasspy": lambda: wake_word("Hey Rhasspy", "onnx::Flatten_0", 16),
    "wake-timer": lambda: wake_word("Set a timer for five minutes", "onnx::Flatten_0", 34),
    "wake-weather": lambda: wake_word("What's the weather?", "onnx::Flatten_0", 22),
    "denoise-16k": lambda: denoiser(320, 160),
    "denoise-48k": lambda: denoiser(1024, 512),
    "pitch-swift": pitch_swift,
    "pitch": notes,
}
