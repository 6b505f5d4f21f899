"""MNN: its converter as a library (its console scripts install packages), then its runtime."""

import sys
from pathlib import Path

import _tools
import MNN.expr as expr
import MNN.nn as nn
import numpy as np

model, inputs, outputs = sys.argv[1:]
converted = Path(outputs).parent / "model.mnn"
side = model.replace("_deploy_model.onnx", "_mnn_compression.bin")
options = ["--MNNModel", str(converted), "--bizCode", "x", "--compressionParamsFile", side]
_tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", model, *options])
feeds = np.load(inputs)
(name,) = {key.rpartition("/")[0] for key in feeds.files}
output = "y"
module = nn.load_module_from_file(str(converted), [name], [output])
found = {}
for key in feeds.files:
    value = feeds[key]
    given = expr.const(value.ravel().tolist(), list(value.shape), expr.NCHW)
    made = expr.convert(module.forward(given), expr.NCHW)
    found[f"{output}/{key.rpartition('/')[2]}"] = np.array(made.read()).reshape(made.shape)
np.savez(outputs, **found)
