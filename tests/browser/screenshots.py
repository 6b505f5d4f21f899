"""The pictures of docs/report.md: `python -m tests.browser.screenshots`.

A small MobileNetV3 is quantized for onnxruntime, and parts of its report are photographed.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.graph import from_proto, save
from onnxq.workflows.quantize import quantize
from tests.browser import chromium
from tests.models import vision_networks

FOLDER = Path(__file__).parents[2] / "docs" / "images"
MOST_BYTES = 300_000


def page(folder: Path) -> Path:
    """A report on a quantized network."""
    model = from_proto(vision_networks.exported("mobilenet v3"))
    save(model, folder / "float.onnx")
    name = model.graph.inputs[0].name
    np.savez(folder / "data.npz", **{name: np.concatenate(vision_networks.images(16, 0))})
    before = Path.cwd()
    os.chdir(folder)  # for short names of files
    try:
        done = quantize("float.onnx", "onnxruntime", "data.npz", stem="mobilenetv3")
        done.save("out")
        return done.full_report("data.npz").save(folder / "report.html")
    finally:
        os.chdir(before)


def store(name: str, picture: bytes) -> None:
    """Write a picture as small as it can be without a loss."""
    from PIL import Image

    path = FOLDER / name
    Image.open(io.BytesIO(picture)).convert("RGB").save(path, optimize=True)
    assert path.stat().st_size < MOST_BYTES, f"{name} has {path.stat().st_size} bytes"


def shoot(opened: Any, name: str, start: str, height: int, before: str = "") -> None:
    """Photograph the page from the element `start` on."""
    opened.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    if before:
        opened.evaluate(before)
        opened.wait_for_timeout(600)
    opened.set_viewport_size({"width": opened.viewport_size["width"], "height": height})
    opened.evaluate(f"document.querySelector('{start}').scrollIntoView()")
    opened.wait_for_timeout(300)
    store(name, opened.screenshot())


SELECT = """document.querySelector("[name=colour][value=sqnr]").click();
    [...document.querySelectorAll("#layer-table tr")].find((row) =>
        row.querySelector(".integer") && row.textContent.includes("uint8"))
        .querySelector("[data-layer]").click();"""


def main() -> int:
    """Make all pictures."""
    why = chromium.why_not()
    if why:
        sys.stderr.write(f"{why}\n")
        return 1
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium.browser() as running:
        path = page(Path(folder))
        size = {"width": 1240, "height": 900}
        with chromium.opened(running, path, viewport=size) as opened:
            shoot(opened, "report.png", "#summary", 900)
            shoot(opened, "report-layers.png", "#layers", 860)
            shoot(opened, "report-distributions.png", "#distributions", 760)
        with chromium.opened(running, path, viewport=size, color_scheme="dark") as opened:
            shoot(opened, "report-network.png", "#network", 860, SELECT)
        narrow = {"width": 375, "height": 760}
        with chromium.opened(running, path, viewport=narrow) as opened:
            shoot(opened, "report-narrow.png", "#summary", 760)
    return 0


if __name__ == "__main__":
    sys.exit(main())
