"""onnxruntime-qnn: the HTP emulator of Qualcomm's library, which must take the whole graph."""

import sys
from pathlib import Path

import onnxruntime as ort
import onnxruntime_qnn
from onnxruntime_session import run_all

model, inputs, outputs = sys.argv[1:]
ort.register_execution_provider_library("QNN", onnxruntime_qnn.get_library_path())
devices = [d for d in ort.get_ep_devices() if d.ep_name == "QNN"]
assert devices, "the QNN provider offers no device"
options = ort.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
library = Path(onnxruntime_qnn.__file__).parent / "libQnnHtp.so"
options.add_provider_for_devices(devices[:1], {"backend_path": str(library)})
run_all(ort.InferenceSession(model, options), inputs, outputs)
