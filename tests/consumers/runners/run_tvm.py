"""TVM: the ONNX importer of relax, compiled for this CPU."""

import sys

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

model, inputs, outputs = sys.argv[1:]
proto = onnx.load(model)
module = from_onnx(proto, keep_params_in_input=False)
machine = relax.VirtualMachine(tvm.compile(module, target=tvm.target.Target("llvm")), tvm.cpu())
feeds = np.load(inputs)
names = [o.name for o in proto.graph.output]
found = {}
for key in feeds.files:
    made = machine["main"](tvm.runtime.tensor(feeds[key]))
    values = [made] if hasattr(made, "numpy") else list(made)
    for name, value in zip(names, values, strict=True):
        found[f"{name}/{key.rpartition('/')[2]}"] = value.numpy()
np.savez(outputs, **found)
