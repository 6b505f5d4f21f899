"""What this CPU has for 8-bit products, and what that means for their results.

x86 CPUs with VNNI add products of 8-bit codes in 32 bits, in one instruction. Without it, kernels
use `vpmaddubsw`, which adds pairs of products in 16 bits and clips: see
`onnxq.analysis.accumulator_bounds`. ARM CPUs never clip.

AMX needs the system's consent. Some virtual machines advertise it and do not enable it; oneDNN,
inside OpenVINO and torch, believes them and is ended by SIGILL.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_X86 = ("x86_64", "AMD64", "i386", "i686")
_SHOWN = {
    "avx2": "AVX2",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512-VNNI",
    "avx_vnni": "AVX-VNNI",
    "amx_int8": "AMX-INT8",
    "asimddp": "DOTPROD",
    "i8mm": "I8MM",
}
"""The features that matter for 8-bit products: as Linux calls them, and as people do."""

_TILE_DATA = 1 << 18
"""The state component of AMX's tiles."""
_ARCH_PRCTL, _ARCH_GET_XCOMP_SUPP = 158, 0x1021


@dataclass(frozen=True)
class Cpu:
    """A CPU, as far as 8-bit kernels are concerned."""

    name: str
    machine: str
    flags: frozenset[str] | None
    """The features that the system lists; None if it lists none."""
    tiles: bool = False
    """Whether the system lets programs use AMX's tiles."""

    @property
    def is_x86(self) -> bool:
        """Whether it runs x86 instructions."""
        return self.machine in _X86

    @property
    def features(self) -> list[str]:
        """The features that matter here, as people call them."""
        return [told for flag, told in _SHOWN.items() if flag in (self.flags or ())]

    @property
    def has_vnni(self) -> bool:
        """Whether it adds 8-bit products in 32 bits."""
        return not {"avx512_vnni", "avx_vnni"}.isdisjoint(self.flags or ())

    @property
    def may_saturate(self) -> bool:
        """Whether 8-bit kernels may clip sums of two products at 16 bits."""
        return self.is_x86 and not self.has_vnni

    @property
    def amx(self) -> str:
        """The state of AMX: none, enabled, or advertised without being enabled."""
        if "amx_tile" not in (self.flags or ()):
            return "none"
        return "enabled" if self.tiles else "advertised, not enabled"

    @property
    def advice(self) -> list[str]:
        """What this CPU means for int8, in sentences."""
        told = []
        if not self.is_x86:
            told.append("int8 sums are exact: kernels of this kind of CPU do not clip them")
        elif self.flags is None:
            told.append(
                "the system lists no CPU features; without VNNI, onnxruntime's int8 kernels may "
                "clip sums at 16 bits: 'onnxq convert' says if it happens, --variant avx2 avoids it"
            )
        elif self.has_vnni:
            told.append("int8 sums are exact: VNNI adds products in 32 bits")
        else:
            told.append(
                "no VNNI: onnxruntime's and OpenVINO's int8 kernels may clip sums of two products "
                "at 16 bits; convert with --variant avx2, or test on the CPU you deploy to"
            )
        if self.amx.startswith("advertised"):
            told.append(
                "AMX is advertised but not enabled, and programs that believe it (OpenVINO, torch) "
                "end with SIGILL: set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
            )
        return told

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "name": self.name,
            "machine": self.machine,
            "features": self.features,
            "vnni": self.has_vnni,
            "may_saturate": self.may_saturate,
            "amx": self.amx,
            "advice": self.advice,
        }


@functools.cache
def this_cpu() -> Cpu:
    """The CPU that this process runs on."""
    machine = platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return Cpu(platform.processor() or machine, machine, None)
    return parsed(text, machine, tiles=_tiles_allowed())


def parsed(text: str, machine: str, *, tiles: bool = False) -> Cpu:
    """The CPU that Linux describes in /proc/cpuinfo."""
    found = dict(re.findall(r"^([^:\n\t]+?)[ \t]*:[ \t]*(.*)$", text, re.MULTILINE))
    flags = found.get("flags", found.get("Features"))
    name = found.get("model name", machine)
    return Cpu(name, machine, None if flags is None else frozenset(flags.split()), tiles)


def _tiles_allowed() -> bool:
    """Whether Linux says that it supports AMX's tiles; asking changes nothing."""
    if platform.machine() != "x86_64":
        return False
    supported = ctypes.c_uint64(0)
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.syscall(_ARCH_PRCTL, _ARCH_GET_XCOMP_SUPP, ctypes.byref(supported))
    return not failed and bool(supported.value & _TILE_DATA)


__all__ = ["Cpu", "parsed", "this_cpu"]
