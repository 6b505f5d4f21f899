"""Sets of zoo model names; a model joins a set through its `@model(...)` line."""

FLOAT: set[str] = set()
"""No QuantizeLinear or DequantizeLinear anywhere."""

QDQ: set[str] = set()
"""Quantized in the QuantizeLinear / DequantizeLinear dialect."""

DIALECTS: set[str] = set()
"""Quantized in another dialect, by operators that are functions of the model or onnxruntime's."""

CNN: set[str] = set()
"""8-bit QDQ networks in which every Conv reads DQ data and a DQ weight, and its result
(maybe after Relu) is read by QuantizeLinear alone: an integer runtime can fuse every Conv."""

BATCH_NORM: set[str] = set()
"""Contains a BatchNormalization, in the main graph or in a body."""

SUBGRAPHS: set[str] = set()
"""Contains If or Loop."""

HALF: set[str] = set()
"""Computes in float16: compare with tolerances of that type."""
