"""The documentation as a site, and the pages that scripts make for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import backend_pages, reference_pages
from tests.suites.snippets import ROOT, blocks

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a page outside the navigation or a dead link ends it."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed (the extra 'docs')")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file(), page.name


def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="(https?:[^"]*)"', text)
        loaded += re.findall(r'<link\b[^>]*rel="stylesheet"[^>]*href="(https?:[^"]*)"', text)
        assert not loaded, page.name
        assert 'class="mermaid"' not in text, "its script would come from the network"


def test_data_of_pages_is_not_published(site: Path) -> None:
    assert {p.name for p in site.rglob("*.json")} <= {"search_index.json"}
    assert not list(site.rglob("*.toml"))


@pytest.mark.parametrize(("name", "backend"), [*backend_pages.shipped()])
def test_the_page_of_a_backend_is_up_to_date(name: str, backend: object) -> None:
    """Otherwise: python -m tests.suites.backend_pages."""
    written = (backend_pages.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert written == backend_pages.page(backend, backend_pages.converted(name))


def test_facts_are_about_backends() -> None:
    names = {name for name, _ in backend_pages.shipped()}
    assert set(backend_pages.FACTS) == names
    assert {page.stem for page in backend_pages.FOLDER.glob("*.md")} == names
    for facts in backend_pages.FACTS.values():
        assert facts.keys() == {"title", "about", "next", "limits"}


@pytest.mark.parametrize(("name", "text"), reference_pages.pages().items())
def test_a_page_of_reference_is_up_to_date(name: str, text: str) -> None:
    """Otherwise: python -m tests.suites.reference_pages."""
    assert (DOCS / name).read_text(encoding="utf-8") == text


def test_vendor_commands_name_files_that_are_written() -> None:
    """Of the conversion that the page shows."""
    for name, backend in backend_pages.shipped():
        written = {f"demo{output.suffix}" for output in backend.outputs}
        named = re.findall(r"out/(demo[\w.]+)", backend_pages.FACTS[name]["next"])
        assert set(named) <= written, name


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("extend-pass.md", "name_nodes"),
        ("extend-format.md", "scales_csv"),
        ("extend-lint.md", "channel_count"),
    ],
)
def test_tutorials_show_the_code_of_the_example_plug_in(page: str, module: str) -> None:
    source = ROOT / "tests/plugin_example/src/mychip_onnxq" / f"{module}.py"
    shown, *_ = blocks(f"docs/{page}", "python")
    assert shown == source.read_text(encoding="utf-8")


def test_the_whole_package_is_the_example_plug_in() -> None:
    package = ROOT / "tests/plugin_example"
    project = (package / "pyproject.toml").read_text(encoding="utf-8")
    assert project in blocks("docs/extend.md", "toml")
    # `py`, not `python`: it needs the other files, so it runs in the tests of the package.
    (backend,) = blocks("docs/extend.md", "py")
    assert backend == (package / "src/mychip_onnxq/backend.py").read_text(encoding="utf-8")


def test_every_observer_is_described() -> None:
    pytest.importorskip("torch", reason="the training side needs torch")
    from torch_bridge.observers import OBSERVERS

    page = (DOCS / "observers.md").read_text(encoding="utf-8")
    assert set(OBSERVERS) == set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE))
