"""Layers whose 16-bit pair sums saturate on x86 CPUs with AVX2 but without VNNI."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.edit import describe
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.running.cpu import Cpu


def _check(subject: Subject) -> Iterator[Finding]:
    for found in subject.bounds:
        if not found.fits_pairs:
            yield Finding(
                "warning",
                describe(found.node),
                PAIR_SATURATION.name,
                "unsafe on AVX2 without VNNI: two products can sum to "
                f"{found.pair_low}..{found.pair_high}, and 8-bit kernels clip at 16 bits",
                "convert with --variant avx2, train weights of 7 bits (-64..63), or run "
                "onnxruntime with session.x64quantprecision=1",
            )
    if subject.bounds and all(found.fits_pairs for found in subject.bounds):
        yield Finding(
            "info",
            "all layers",
            PAIR_SATURATION.name,
            f"safe on AVX2 without VNNI: no input can saturate the 16-bit sums of "
            f"{len(subject.bounds)} layers",
            "nothing to do",
        )


PAIR_SATURATION = LintRule(
    "pair-saturation", "layers that 8-bit kernels of AVX2 CPUs compute wrongly", _check
)


def is_about(finding: Finding, cpu: Cpu, variant: str | None) -> bool:
    """Whether a finding concerns this CPU or the variant; those of other rules always do."""
    if finding.rule != PAIR_SATURATION.name:
        return True
    return cpu.may_saturate or variant == AVX2


AVX2 = "avx2"
"""The variant for CPUs that saturate."""
