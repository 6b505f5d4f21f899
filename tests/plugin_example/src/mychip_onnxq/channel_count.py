"""A third-party lint rule: mychip computes eight channels at a time."""

from collections.abc import Iterator

from onnxq.edit import describe
from onnxq.graph import array
from onnxq.lint import Finding, LintRule, Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Convolutions that leave part of the array idle."""
    for node in subject.canonical.nodes("Conv"):
        quantizer = node.inputs[1].inputs[0] if node.inputs[1].inputs else None
        weight = array(node.inputs[1] if quantizer is None else quantizer.inputs[0])
        if weight is not None and weight.shape[0] % 8:
            yield Finding(
                "warning",
                describe(node),
                CHANNEL_COUNT.name,
                f"{weight.shape[0]} output channels: mychip computes eight at a time",
                "train with a multiple of 8 channels",
            )


CHANNEL_COUNT = LintRule("mychip-channels", "channels are a multiple of 8", check)
