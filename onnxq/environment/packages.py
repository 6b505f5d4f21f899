"""Packages that onnxq needs or can use: which are installed, and whether they import."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["needed", "extra", "consumer"]


@dataclass(frozen=True)
class Package:
    """A package or program, and its state here."""

    name: str
    kind: Kind
    purpose: str
    install: str
    """The command that installs it."""
    version: str | None = None
    """None: it is not installed."""
    problem: str = ""
    """Why it cannot be used although it is installed, or is not the version that is needed."""

    @property
    def is_broken(self) -> bool:
        """Whether onnxq cannot work until this is mended."""
        return self.kind == "needed" and (self.version is None or bool(self.problem))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return vars(self) | {"broken": self.is_broken}


_NEEDED = {
    "jinja2": ("jinja2", "report pages"),
    "ml_dtypes": ("ml_dtypes", "types of few bits"),
    "numpy": ("numpy", "arrays"),
    "onnx": ("onnx", "the model format"),
    "onnx-graphsurgeon": ("onnx_graphsurgeon", "graph rewriting"),
    "onnxruntime": ("onnxruntime", "running and proving models"),
    "protobuf": ("google.protobuf", "model files"),
    "rich": ("rich", "tables"),
    "typer": ("typer", "the command line"),
}
"""Distributions, the module to import, and what for."""

_EXTRAS = {
    "torch": ("torch", "training (torch_bridge)"),
    "onnxscript": ("dynamo", "torch_bridge.export(exporter='dynamo')"),
    "pillow": ("images", "pictures as data (--image-size)"),
    "distributed": ("cluster", "calibration on a dask cluster (--cluster)"),
}
"""Distributions, the extra that installs them, and what for."""

_CONSUMERS = {
    "openvino": "runs files for openvino",
    "ncnn": "runs files for ncnn",
    "apache-tvm": "runs files for tvm",
    "iree-base-runtime": "runs files for iree",
    "iree-base-compiler": "compiles files for iree",
    "tensorrt": "runs files for tensorrt",
    "onnxruntime-qnn": "runs files for qnn",
}
_PROGRAMS = {
    "chromium": (("chromium", "chromium-browser", "google-chrome"), "opens reports in tests"),
    "node": (("node",), "runs onnxruntime-web in tests"),
}


def packages() -> list[Package]:
    """All packages and programs that onnxq knows, with their state."""
    return [*_needed(), *_optional()]


def _needed() -> Iterator[Package]:
    ranges = _ranges()
    for name, (module, purpose) in _NEEDED.items():
        version = _version(name)
        problem = "" if version is None else _import_problem(module)
        wanted = ranges.get(name.lower().replace("_", "-"), "")
        if version is not None and not problem and not _is_within(version, wanted):
            problem = f"onnxq is tested with {wanted}"
        install = f'pip install "{name}{wanted}"'
        yield Package(name, "needed", purpose, install, version, problem)


def _optional() -> Iterator[Package]:
    for name, (extra, purpose) in _EXTRAS.items():
        yield Package(name, "extra", purpose, f'pip install "onnxq[{extra}]"', _version(name))
    kernels = _native_kernels()
    if kernels is not None:
        yield Package(
            "C kernels",
            "extra",
            "faster training; torch's operators compute the same",
            "install a C compiler and onnxq again",
            "built" if kernels else None,
        )
    for name, purpose in _CONSUMERS.items():
        yield Package(name, "consumer", purpose, f"pip install {name}", _version(name))
    for name, (commands, purpose) in _PROGRAMS.items():
        found = any(shutil.which(command) for command in commands)
        install = "a package of the system"
        yield Package(name, "consumer", purpose, install, "found" if found else None)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _import_problem(module: str) -> str:
    """Why a module does not import; '' if it does."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a damaged package may fail in any way
        return f"{type(error).__name__}: {error}"
    return ""


def _ranges() -> dict[str, str]:
    """The versions that onnxq's own metadata asks for; none where it is not installed."""
    try:
        lines = importlib.metadata.requires("onnxq") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    needed = (re.match(r"([\w.-]+)\s*([^;]*)$", line) for line in lines)
    return {m[1].lower().replace("_", "-"): m[2].strip(" ()") for m in needed if m is not None}


def _is_within(version: str, wanted: str) -> bool:
    """Whether a version lies in a range; True where nothing can tell."""
    if importlib.util.find_spec("packaging") is None:
        return True
    specifiers = importlib.import_module("packaging.specifiers")
    return bool(specifiers.SpecifierSet(wanted).contains(version, prereleases=True))


def _native_kernels() -> bool | None:
    """Whether the kernels for training were compiled; None if training is not installed."""
    spec = importlib.util.find_spec("torch_bridge")
    if spec is None or not spec.submodule_search_locations or _version("torch") is None:
        return None
    folders = [Path(place) / "arithmetic" for place in spec.submodule_search_locations]
    suffixes = {".so", ".pyd"}
    return any(f.suffix in suffixes for d in folders for f in d.glob("_native.*"))


__all__ = ["Package", "packages"]
