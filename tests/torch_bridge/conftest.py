"""Every test draws the same numbers, on one thread; packages that a test installs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from tests.checks.published import published  # noqa: E402
from tests.torch_bridge import registries  # noqa: E402


@pytest.fixture(autouse=True)
def repeatable() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What the test registers or installs is forgotten after it."""
    with registries.restored():
        yield


@pytest.fixture
def publish(
    forgotten: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Install a distribution with these entry points."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(distribution: str, group: str, **entries: object) -> None:
        published(tmp_path, monkeypatch, distribution, group, entries)
        registries.look_again()

    return add
