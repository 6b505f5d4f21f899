"""Headless Chromium, and pages from files that may load nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def executable() -> str | None:
    """The browser of this machine, if there is one."""
    named = os.environ.get("ONNXQ_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


def why_not() -> str:
    """Why pages cannot be opened here; '' if they can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright is not installed (make browser)"
    program = executable()
    if program is None:
        return "Chromium is not installed (make browser)"
    with tempfile.TemporaryDirectory() as folder:
        started = subprocess.run(
            [program, *FLAGS, f"--user-data-dir={folder}", "--dump-dom", "about:blank"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    lines = started.stderr.strip().splitlines()[-1:]
    return "" if started.returncode == 0 else f"Chromium does not start here: {lines}"


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A running browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable(), args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


@contextlib.contextmanager
def opened(running: Any, file: Path, **options: Any) -> Iterator[Any]:
    """A page from a file, ready to be used; raises if it loads anything or reports an error.

    `options` are those of a browser context, such as color_scheme and viewport, and `expected`: a
    part of messages that are wanted.
    """
    expected = options.pop("expected", None)
    size = options.pop("viewport", {"width": 1280, "height": 900})
    context = running.new_context(viewport=size, **options)
    troubles: list[str] = []
    try:
        page = context.new_page()
        page.set_default_timeout(60000)
        page.on("console", lambda message: _note(troubles, message))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("request", lambda request: _foreign(troubles, request.url, file))
        page.goto(file.resolve().as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        yield page
        unwanted = [t for t in troubles if expected is None or expected not in t]
        assert not unwanted, unwanted
    finally:
        context.close()


def until(page: Any, condition: str) -> None:
    """Wait for a condition. Playwright's way evaluates text, which the page's policy forbids."""
    for _ in range(400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {condition}")


def _note(troubles: list[str], message: Any) -> None:
    if message.type in ("error", "warning"):
        troubles.append(f"{message.type}: {message.text}")


def _foreign(troubles: list[str], url: str, file: Path) -> None:
    if url.partition("#")[0] != file.resolve().as_uri() and not url.startswith(("data:", "blob:")):
        troubles.append(f"it loads {url}")
