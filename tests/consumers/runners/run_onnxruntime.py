"""onnxruntime's default session, as a user opens it."""

import sys

import onnxruntime as ort
from onnxruntime_session import run_all

model, inputs, outputs = sys.argv[1:]
run_all(ort.InferenceSession(model, providers=["CPUExecutionProvider"]), inputs, outputs)
