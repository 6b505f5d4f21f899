"""The page of public names: `python -m tests.suites.api_page > docs/api.md`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

PACKAGES = (
    *("onnxq", "onnxq.graph", "onnxq.edit", "onnxq.pass_", "onnxq.pipeline", "onnxq.backend"),
    *("onnxq.quant", "onnxq.side_files", "onnxq.lint", "onnxq.errors"),
    "passes.phases",
)
"""What users and plug-ins import; `torch_bridge` is described in its own docstring."""


def lines() -> Iterator[str]:
    """The page, line by line."""
    yield "# Public names"
    yield ""
    yield "What `__all__` of each package lists, and the passes: `passes.to_qdq.ToQdq` is `to-qdq`,"
    yield "and so on (`onnxq passes`). Everything else may move without notice."
    for package in PACKAGES:
        module = importlib.import_module(package)
        yield ""
        yield f"## {package}"
        yield ""
        yield _first_line(module.__doc__)
        yield ""
        yield "| name | |"
        yield "|---|---|"
        for name in sorted(module.__all__, key=str.lower):
            yield f"| `{name}` | {_about(getattr(module, name))} |"


def page() -> str:
    """The whole page."""
    return "\n".join(lines()) + "\n"


def _about(thing: object) -> str:
    named = inspect.isclass(thing) or inspect.isfunction(thing)
    return _first_line(inspect.getdoc(thing)) if named else "constant"


def _first_line(text: str | None) -> str:
    assert text
    return text.partition("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
