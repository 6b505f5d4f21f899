"""What a session of onnxruntime makes of every input, whatever provider it has."""

from pathlib import Path

import numpy as np
import onnxruntime as ort


def run_all(session: ort.InferenceSession, inputs: str | Path, outputs: str | Path) -> None:
    """Run `name/number` of the file `inputs`; write `output/number` to `outputs`."""
    names = [o.name for o in session.get_outputs()]
    feeds = np.load(inputs)
    found = {}
    for key in feeds.files:
        name, _, number = key.rpartition("/")
        for output, value in zip(names, session.run(names, {name: feeds[key]}), strict=True):
            found[f"{output}/{number}"] = value
    np.savez(outputs, **found)
