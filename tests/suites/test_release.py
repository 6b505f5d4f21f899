"""Habits of releasing: one version, a workflow like `.ci/run`, a page on security."""

from __future__ import annotations

import re
import tomllib

import pytest

from onnxq import __version__
from tests.suites.snippets import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_has_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "onnxq.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_workflow_runs_what_ci_runs_on_every_python() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs")
    path = ROOT / ".github" / "workflows" / "test.yml"
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    steps = {name: [step.get("run") for step in job["steps"]] for name, job in jobs.items()}
    assert ".ci/run" in steps["test"]
    assert "make release-check" in steps["release"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]


def test_ci_is_executable() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
