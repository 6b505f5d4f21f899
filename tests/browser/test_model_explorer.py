"""The files for Model Explorer in Model Explorer itself: its types, its server and its viewer.

`make test-explorer` installs it in an environment of its own, which ONNXQ_MODEL_EXPLORER names.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxq.reporting.model_explorer import write_model_explorer
from tests.models.reported import contents

TYPES = """
import json, sys
from dacite import Config, from_dict
from model_explorer.graph_builder import Graph
from model_explorer.node_data_builder import GraphNodeData

strict = Config(strict=True)
graph, *overlays = (json.load(open(path)) for path in sys.argv[1:])
nodes = [len(from_dict(Graph, each, strict).nodes) for each in graph["graphs"]]
for overlay in overlays:
    for data in overlay.values():
        for result in data["results"].values():  # words are taken, but typed as numbers
            result["value"] = 0 if isinstance(result["value"], str) else result["value"]
        assert from_dict(GraphNodeData, data, strict).results
print(*nodes)
"""


@pytest.fixture
def programs() -> Path:
    """The folder with the programs of the environment."""
    named = os.environ.get("ONNXQ_MODEL_EXPLORER")
    if not named:
        pytest.skip("Model Explorer is not installed (make test-explorer)")
    return Path(named)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write_model_explorer(contents(), tmp_path)


def test_its_types(programs: Path, files: list[Path]) -> None:
    command = [programs / "python", "-c", TYPES, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(contents().layers))]


@contextlib.contextmanager
def serving(programs: Path, files: list[Path]) -> Iterator[str]:
    """The address of a server that shows the files."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    graph, *overlays = map(str, files)
    command = [str(programs / "model-explorer"), graph, "--node_data_paths", ",".join(overlays)]
    command += ["--no_open_in_browser", "--skip_health_check", "--port", str(port)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if line.startswith("http://"):
                    yield line.strip()
                    break
        finally:
            server.terminate()


def test_its_viewer(programs: Path, files: list[Path], running: Any) -> None:
    with serving(programs, files) as address:
        page = running.new_page(viewport={"width": 1400, "height": 900})
        try:
            page.goto(address)
            page.get_by_text("NODE DATA PROVIDERS").wait_for(timeout=60000)
            shown = page.inner_text("body")
        finally:
            page.close()
    assert re.search(rf"op node count\s+{len(contents().layers)}\b", shown)
    for overlay in ("precision", "signal to noise, dB", "added noise, %"):
        assert overlay in shown
    assert "integer" in shown
