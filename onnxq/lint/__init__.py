"""Lint rules, one concept a file; `findings` lists those that hold for every backend."""

from onnxq.lint.rule import Finding, LintRule, Subject

__all__ = ["Finding", "LintRule", "Subject"]
