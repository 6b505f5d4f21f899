"""The state of a machine as people see it."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from onnxq.environment.checkup import PlugIn, doctor
from onnxq.environment.packages import Package
from onnxq.running.cpu import Cpu
from onnxq.views.checkup import checkup


def test_troubles_are_shown_with_what_to_do() -> None:
    found = replace(
        doctor(),
        cpu=Cpu("A Chip", "x86_64", frozenset(("avx2", "amx_tile"))),
        packages=(
            Package("onnxruntime", "needed", "runs models", "pip install onnxruntime"),
            Package("openvino", "consumer", "runs files", "pip install openvino"),
        ),
        plug_ins=(PlugIn("pass", "[red]", "someone", "ImportError: x"),),
    )
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(checkup(found))
    shown = out.getvalue()
    assert "CPU: A Chip: AVX2 (AMX advertised, not enabled)" in shown
    assert "--variant avx2" in shown
    assert "not installed  runs models: pip install onnxruntime" in shown
    assert "pass [red] of someone: broken: ImportError: x" in shown
    assert "onnxq cannot work like this" in shown
