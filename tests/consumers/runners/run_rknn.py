"""rknn-toolkit2: its simulator of the RK3588, on a QDQ model that it must not quantize again.

It needs other versions of numpy and onnx than onnxq, so this runs in an environment of its own.
"""

import sys
from pathlib import Path

import numpy as np
from rknn.api import RKNN

model, inputs, outputs = sys.argv[1:]
simulator = RKNN(verbose=False)
feeds = np.load(inputs)
rank = feeds[feeds.files[0]].ndim
# Images are given with channels last; anything else as it is.
layout = {"data_format": ["nhwc"]} if rank == 4 else {}
assert simulator.config(target_platform="rk3588") == 0
assert simulator.load_onnx(model) == 0
assert simulator.build(do_quantization=False) == 0
assert simulator.init_runtime() == 0
found = {}
for key in feeds.files:
    name, _, number = key.rpartition("/")
    value = feeds[key].transpose(0, 2, 3, 1) if rank == 4 else feeds[key]
    made = simulator.inference(inputs=[np.ascontiguousarray(value)], **layout)
    (found[f"y/{number}"],) = made
np.savez(Path(outputs), **found)
