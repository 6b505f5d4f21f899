"""The page holds everything, loads nothing, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from onnxq.reporting.html_page import html_page
from onnxq.workflows.report import report
from tests.checks.vendored_scripts import FOLDER, Script, scripts
from tests.models.reported import HOSTILE, contents, float_network, hostile_network, images


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text += data


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(html_page(contents()))


def test_nothing_is_loaded(page: Page) -> None:
    for tag, attrs in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "img")
        for name in ("src", "href", "action"):
            assert (attrs.get(name) or "#").startswith("#")


def policy(page: Page) -> str:
    return next(
        attrs["content"] or ""
        for tag, attrs in page.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )


def test_only_the_scripts_of_the_page_may_run(page: Page) -> None:
    allowed = set(re.findall(r"'sha256-([^']+)'", policy(page)))
    own = [script for script in page.scripts if not script.startswith("{")]
    digests = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in own}
    assert digests == allowed
    assert "default-src 'none'" in policy(page)
    script_rule = re.search(r"script-src ([^;]*)", policy(page))
    assert script_rule is not None
    assert "unsafe" not in script_rule[1]


def test_every_section_is_there(page: Page) -> None:
    targets = {attrs["href"] for tag, attrs in page.tags if tag == "a"}
    ids = {f"#{attrs['id']}" for _, attrs in page.tags if "id" in attrs}
    assert targets <= ids
    assert len(targets) == 9
    for words in ("Signal to noise", "On integers", "block.conv1", "onnxq explain", "uint8"):
        assert words in page.text or words in "".join(page.scripts)


def test_the_data_can_be_read(page: Page) -> None:
    (data,) = (json.loads(s) for s in page.scripts if s.startswith("{"))
    assert data["layers"]["name"][0] == "stem"


def test_a_hostile_name_is_text() -> None:
    page = Page(report(hostile_network(), float_network(), images(1)).html)
    assert HOSTILE in page.text
    own = [script for script in page.scripts if not script.startswith("{")]
    assert len(own) == 5  # the theme, three libraries, the page's own
    assert not any("window.hit" in script for script in own)
    (data,) = (json.loads(s) for s in page.scripts if s.startswith("{"))
    assert HOSTILE in data["layers"]["name"]
    assert "img" not in {tag for tag, _ in page.tags}


def test_the_same_contents_are_the_same_page() -> None:
    assert html_page(contents()) == html_page(contents())


@pytest.mark.parametrize("script", scripts(), ids=lambda script: script.package)
def test_libraries_are_those_of_the_registry(script: Script) -> None:
    text = script.path.read_bytes()
    assert hashlib.sha256(text).hexdigest() == script.sha256
    assert b"</script" not in text.lower()
    assert b"<!--" not in text
    licence = (FOLDER / f"{script.stem}.LICENSE").read_text(encoding="utf-8")
    assert "Copyright" in licence
