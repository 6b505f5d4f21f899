"""The doctor: what it finds here, and what it says where something is broken."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import replace

import pytest

import onnxq
from onnxq import discovery
from onnxq.discovery import Broken
from onnxq.environment import checkup as module
from onnxq.environment.checkup import doctor
from onnxq.running import sessions
from tests.onnxq.conftest import Run


def test_doctor(onnxq: Run) -> None:
    code, out, err = onnxq("doctor")
    assert (code, err) == (0, "")
    assert "all that onnxq needs works" in out
    assert len(out.splitlines()) <= 40
    document = json.loads(onnxq("doctor", "--json")[1])
    assert document["healthy"] is True
    assert document["cpu"]["advice"]
    names = {package["name"] for package in document["packages"]}
    assert {"onnxruntime", "torch", "openvino", "ncnn", "distributed"} <= names
    for package in document["packages"]:
        assert package["name"] in out


def test_in_python() -> None:
    assert onnxq.doctor().to_json() == doctor().to_json()


def test_a_runtime_that_does_not_run_is_not_healthy(
    onnxq: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr(sessions, "shipped", broken)
    code, out, _ = onnxq("doctor")
    assert code == 2
    assert "onnxruntime does not run a model: RuntimeError: illegal instruction" in out


def installed(monkeypatch: pytest.MonkeyPatch, *entries: importlib.metadata.EntryPoint) -> None:
    every = importlib.metadata.EntryPoints(entries)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **by: every.select(**by))


def test_a_misspelt_group_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, importlib.metadata.EntryPoint("mine", "b:A", "onnxq.pases"))
    (found,) = doctor().plug_ins
    assert found.problem.startswith(
        "nothing reads the group 'onnxq.pases': did you mean 'onnxq.pass"
    )


def test_plug_ins_found_and_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        importlib.metadata.EntryPoint(name, f"some_package:{name}", module.BACKENDS_GROUP)
        for name in ("good", "bad")
    ]
    installed(monkeypatch, *entries)
    sick = Broken("bad", "ImportError: no licence", "some_package:bad")
    monkeypatch.setattr(module, "backends", lambda: {"bad": sick})
    found = doctor()
    assert [(p.name, p.problem) for p in found.plug_ins] == [
        ("good", ""),
        ("bad", "ImportError: no licence"),
    ]
    assert found.healthy  # a plug-in is not needed
    assert not replace(found, session_problem="x").healthy


def test_plug_ins_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    group = discovery.OBSERVERS_GROUP
    entries = [
        importlib.metadata.EntryPoint("good", "json:loads", group),
        importlib.metadata.EntryPoint("bad", "no_such_module:Thing", group),
    ]
    installed(monkeypatch, *entries)
    good, bad = doctor().plug_ins
    assert (good.kind, good.name, good.problem) == ("observer", "good", "")
    assert "no_such_module" in bad.problem


class Twin:
    """Stands for an observer that two packages provide."""

    observer = "twin"


def test_two_plug_ins_of_training_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    group = discovery.OBSERVERS_GROUP
    entries = (importlib.metadata.EntryPoint(n, f"{__name__}:Twin", group) for n in ("a", "b"))
    installed(monkeypatch, *entries)
    assert all("'twin' is provided twice by" in each.problem for each in doctor().plug_ins)
    assert len(doctor().plug_ins) == 2


def test_two_plug_ins_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def clash() -> None:
        raise module.OnnxqError("format 'a' is provided by both b and c", fix="uninstall one")

    entry = importlib.metadata.EntryPoint("a", "b:A", module.FORMATS_GROUP)
    installed(monkeypatch, entry)
    monkeypatch.setattr(module, "formats", clash)
    (found,) = doctor().plug_ins
    assert "both b and c" in found.problem
