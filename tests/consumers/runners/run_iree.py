"""IREE: imported, compiled for this CPU with llvm, run in its own virtual machine."""

import subprocess
import sys
from pathlib import Path

import iree.runtime as runtime
import numpy as np
import onnx

model, inputs, outputs = sys.argv[1:]
tools, folder = Path(sys.executable).parent, Path(outputs).parent
proto = onnx.load(model)
opset = max(17, max(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")))
mlir, compiled = folder / "model.mlir", folder / "model.vmfb"
version = ["--opset-version", str(opset)]
subprocess.run([tools / "iree-import-onnx", model, *version, "-o", mlir], check=True)
target = [
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
]
subprocess.run([tools / "iree-compile", mlir, *target, "-o", compiled], check=True)
module = runtime.load_vm_flatbuffer_file(str(compiled), driver="local-sync")
function = getattr(module, proto.graph.name)
feeds = np.load(inputs)
names = [o.name for o in proto.graph.output]
found = {}
for key in feeds.files:
    made = function(feeds[key])
    values = list(made) if isinstance(made, list | tuple) else [made]
    for name, value in zip(names, values, strict=True):
        found[f"{name}/{key.rpartition('/')[2]}"] = value.to_host()
np.savez(outputs, **found)
