"""The state of packages: there, missing, damaged, of another version."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

from onnxq.environment import packages as module
from onnxq.environment.packages import Package, packages


def named() -> dict[str, Package]:
    return {package.name: package for package in packages()}


def test_what_the_tests_run_with_is_fine() -> None:
    found = named()
    assert found["numpy"].version == np.__version__
    assert not any(package.is_broken for package in found.values())
    assert {package.kind for package in found.values()} == {"needed", "extra", "consumer"}


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = named()
    assert found["onnxruntime"].is_broken
    assert 'pip install "onnxruntime' in found["onnxruntime"].install
    assert not found["openvino"].is_broken
    assert found["torch"].install == 'pip install "onnxq[torch]"'


def test_damaged_and_unknown_versions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module._NEEDED, "numpy", ("a_module_that_is_not_there", "arrays"))
    monkeypatch.setattr(module, "_ranges", lambda: {"rich": ">=1000"})
    found = named()
    assert found["numpy"].problem.startswith("ModuleNotFoundError")
    assert found["rich"].problem == "onnxq is tested with >=1000"


def test_what_is_needed_is_what_the_project_declares() -> None:
    declared = module._ranges()
    if not declared:
        pytest.skip("onnxq is not installed here")
    needed = {name.lower().replace("_", "-") for name in module._NEEDED}
    assert needed == set(declared)
