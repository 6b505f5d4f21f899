"""One browser for all tests, and pages made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxq.workflows.report import report
from tests.browser import chromium
from tests.models.reported import float_network, hostile_network, images, quantized_network


@pytest.fixture(scope="session")
def running() -> Iterator[Any]:
    why = chromium.why_not()
    if why:
        pytest.skip(why)
    with chromium.browser() as found:
        yield found


@pytest.fixture(scope="session")
def full_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything in it."""
    path = tmp_path_factory.mktemp("page") / "full.html"
    return report(quantized_network(), float_network(), images()).save(path)


@pytest.fixture(scope="session")
def bare_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a float model alone."""
    return report(float_network()).save(tmp_path_factory.mktemp("page") / "bare.html")


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on a model with names that would run scripts."""
    path = tmp_path_factory.mktemp("page") / "hostile.html"
    return report(hostile_network(), float_network(), images(1)).save(path)
