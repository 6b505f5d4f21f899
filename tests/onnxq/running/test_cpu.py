"""What a CPU means for int8, from the text that Linux gives about it."""

from __future__ import annotations

import platform

import pytest

from onnxq.running.cpu import parsed, this_cpu

OLD = "processor\t: 0\nmodel name\t: Old Chip\nflags\t\t: fpu sse4_2 avx avx2 fma\n"
NEW = OLD.replace("Old", "New").replace("fma", "fma avx512f avx512_vnni")
TILES = NEW.replace("avx512f", "avx512f amx_tile amx_int8")


@pytest.mark.parametrize(
    ("text", "features", "saturates"),
    [
        (OLD, ["AVX2"], True),
        (NEW, ["AVX2", "AVX512", "AVX512-VNNI"], False),
        (OLD.replace("fma", "avx_vnni"), ["AVX2", "AVX-VNNI"], False),
        ("processor : 0\n", [], True),
    ],
)
def test_x86(text: str, features: list[str], saturates: bool) -> None:
    cpu = parsed(text, "x86_64")
    assert cpu.features == features
    assert cpu.may_saturate is saturates
    assert ("--variant avx2" in " ".join(cpu.advice)) is saturates


def test_arm_never_saturates() -> None:
    cpu = parsed("processor : 0\nFeatures : fp asimd asimddp i8mm\n", "aarch64")
    assert cpu.features == ["DOTPROD", "I8MM"]
    assert not cpu.may_saturate
    assert "exact" in cpu.advice[0]


def test_amx_that_is_not_enabled_is_told() -> None:
    assert parsed(NEW, "x86_64").amx == "none"
    assert parsed(TILES, "x86_64", tiles=True).amx == "enabled"
    cpu = parsed(TILES, "x86_64")
    assert cpu.amx == "advertised, not enabled"
    assert "ONEDNN_MAX_CPU_ISA" in cpu.advice[-1]


def test_this_cpu() -> None:
    cpu = this_cpu()
    assert cpu.machine == platform.machine()
    assert cpu.advice
    assert cpu.to_json()["features"] == cpu.features
