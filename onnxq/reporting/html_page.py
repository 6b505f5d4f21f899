"""The page: contents, style and scripts in one file that loads nothing.

Everything that comes from a model or a command line is escaped, in the text by the template and in
the data as JSON without `<`. A content security policy names the hashes of the page's own scripts,
so no other script runs, whatever a node is called, and nothing is fetched.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from onnxq.reporting import page_views
from onnxq.reporting.contents import Contents

_FOLDER = Path(__file__).parent
_VENDORED = ("d3.min.js", "plot.umd.min.js", "cytoscape.min.js")
_EARLY = "page/theme.js"
_OWN = ("common.js", "tables.js", "charts.js", "details.js", "network.js", "start.js")


def html_page(contents: Contents) -> str:
    """The HTML of a report."""
    early, scripts = _read(_EARLY), [*_vendored(), _own()]
    policy = [
        "default-src 'none'",
        "script-src " + " ".join(f"'sha256-{_digest(script)}'" for script in (early, *scripts)),
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return _template().render(
        policy="; ".join(policy),
        style=Markup(_read("page/style.css")),
        early=Markup(early),
        scripts=[Markup(script) for script in scripts],
        data=_embedded(page_views.drawn(contents)),
        contents=contents,
        views=page_views,
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": page_views.number,
        "decibels": page_views.decibels,
        "percent": page_views.percent,
        "size": page_views.size,
        "visible": page_views.visible,
        "breakable": _breakable,
    }
    return environment.get_template("report.html.j2")


def _breakable(name: str) -> Markup:
    """A name that may be broken after the signs that separate its parts."""
    return Markup("<wbr>").join(re.split(r"(?<=[/.:])", name))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@functools.cache
def _vendored() -> tuple[str, ...]:
    """The libraries; they have no '</script', which a test holds them to."""
    return tuple(_read(f"vendored/{name}") for name in _VENDORED)


@functools.cache
def _own() -> str:
    """The page's own scripts, which share no names with the libraries."""
    parts = "\n".join(_read(f"page/{name}") for name in _OWN)
    return f'(() => {{\n"use strict";\n{parts}}})();'


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _embedded(value: Any) -> Markup:
    """JSON that cannot end the element that holds it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


__all__ = ["html_page"]
