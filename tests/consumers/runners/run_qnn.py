"""onnxruntime-qnn: the HTP emulator of Qualcomm's library, which must take the whole graph."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import onnxruntime_qnn

model, inputs, outputs = sys.argv[1:]
ort.register_execution_provider_library("QNN", onnxruntime_qnn.get_library_path())
devices = [d for d in ort.get_ep_devices() if d.ep_name == "QNN"]
assert devices, "the QNN provider offers no device"
options = ort.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
library = Path(onnxruntime_qnn.__file__).parent / "libQnnHtp.so"
options.add_provider_for_devices(devices[:1], {"backend_path": str(library)})
session = ort.InferenceSession(model, options)
names = [o.name for o in session.get_outputs()]
feeds = np.load(inputs)
found = {}
for key in feeds.files:
    name, _, number = key.rpartition("/")
    for output, value in zip(names, session.run(names, {name: feeds[key]}), strict=True):
        found[f"{output}/{number}"] = value
np.savez(outputs, **found)
