"""Quantization as values: types, scales and zero points, tables, what a target accepts."""

from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import QType, qtype
from onnxq.quant.scheme import QSpec, Scheme

__all__ = ["LogParams", "QParamTable", "QParams", "QSpec", "QType", "Role", "Scheme", "qtype"]
