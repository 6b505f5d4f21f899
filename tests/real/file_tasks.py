"""Files told by their content: labels are the endings of names, the files those of Python."""

from __future__ import annotations

import json
import site
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.models import real_models
from tests.real.task import Feed, Figure, Missing, Run, Task

ENDINGS = {
    ".py": "python",
    ".pyc": "pythonbytecode",
    ".so": "elf",
    ".h": "c",
    ".c": "c",
    ".hpp": "cpp",
    ".html": "html",
    ".js": "javascript",
    ".css": "css",
    ".json": "json",
    ".png": "png",
    ".gif": "gif",
    ".svg": "svg",
    ".ttf": "ttf",
    ".xml": "xml",
    ".yaml": "yaml",
    ".toml": "toml",
    ".npz": "npz",
    ".npy": "npy",
    ".cmake": "cmake",
}
MOST_OF_A_KIND = 20


def features(data: bytes) -> np.ndarray:
    """The first and last 1024 bytes without white space at the ends; 256 where there is none."""
    head = list(data[:4096].lstrip()[:1024])
    tail = list(data[-4096:].rstrip()[-1024:])
    whole = head + [256] * (1024 - len(head)) + [256] * (1024 - len(tail)) + tail
    return np.array([whole], np.int32)


def _files() -> list[tuple[Path, str]]:
    """Up to twenty files of each kind, in the order of their names."""
    folders = [Path(sysconfig.get_paths()["stdlib"]), *map(Path, site.getsitepackages())]
    found: dict[str, list[Path]] = {kind: [] for kind in ENDINGS.values()}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            kind = ENDINGS.get(path.suffix)
            if kind and len(found[kind]) < MOST_OF_A_KIND and path.is_file():
                size = path.stat().st_size
                if 200 < size < 1 << 22:
                    found[kind].append(path)
    files = [(path, kind) for kind, paths in found.items() for path in paths]
    if len(files) < 100:
        raise Missing("Python's folders contain too few kinds of files")
    return files


def file_types() -> Task:
    """Every second file calibrates, the others are tested."""
    folder = "magika/models/standard_v3_3"
    config = real_models.member("magika==1.0.3", f"{folder}/config.min.json")
    labels = json.loads(config.read_text(encoding="utf-8"))["target_labels_space"]
    files = _files()

    def right(run: Run) -> list[float]:
        return [
            labels[int(next(iter(run({"bytes": features(p.read_bytes())}).values())).argmax())] == k
            for p, k in files[1::2]
        ]

    def samples(_: Run) -> list[Feed]:
        mixed = np.random.default_rng(0).permutation(len(files[::2]))[:64]
        return [{"bytes": features(files[::2][i][0].read_bytes())} for i in mixed]

    lost = len(files[1::2]) // 100
    return Task("64 files of Python", samples, Figure("files told", right, lost))


TASKS: dict[str, Callable[[], Task]] = {"magika": file_types}
