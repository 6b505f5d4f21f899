"""The state of a machine as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table

from onnxq.views.screen import shown

if TYPE_CHECKING:
    from onnxq.environment.checkup import Checkup
    from onnxq.environment.packages import Package

_TITLES = {"needed": "Needed", "extra": "Extras", "consumer": "Consumers (to try written files)"}


def checkup(found: Checkup) -> RenderableType:
    """Versions, the CPU and what it means, extras, consumers and plug-ins."""
    features = ", ".join(found.cpu.features) or "none that matter for int8"
    amx = "" if found.cpu.amx in ("none", "enabled") else f" (AMX {found.cpu.amx})"
    parts: list[RenderableType] = [
        shown(f"onnxq {found.version}, Python {found.python}, {found.system}"),
        shown(f"CPU: {found.cpu.name}: {features}{amx}"),
        *(shown(f"  {line}", "" if "exact" in line else "yellow") for line in found.cpu.advice),
    ]
    for kind, title in _TITLES.items():
        parts += [shown(title, "bold"), _packages([p for p in found.packages if p.kind == kind])]
    parts.append(shown("Plug-ins", "bold"))
    for plug_in in found.plug_ins:
        text = f"  {plug_in.kind} {plug_in.name} of {plug_in.distribution}"
        told = f"{text}: broken: {plug_in.problem}" if plug_in.problem else text
        parts.append(shown(told, "red" if plug_in.problem else ""))
    if not found.plug_ins:
        parts.append(shown("  none", "dim"))
    if found.session_problem:
        parts.append(shown(f"onnxruntime does not run a model: {found.session_problem}", "red"))
    verdict = "all that onnxq needs works" if found.healthy else "onnxq cannot work like this"
    return Group(*parts, shown(verdict, "green" if found.healthy else "bold red"))


def _packages(found: list[Package]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(overflow="fold")
    for each in found:
        state, style = each.version or "not installed", ""
        told = each.purpose
        if each.is_broken or each.problem:
            told, style = f"{each.problem or each.purpose}: {each.install}", "red"
        elif each.version is None:
            told, style = f"{each.purpose}: {each.install}", "dim"
        table.add_row(f"  {each.name}", shown(state, style), shown(told, style))
    return table


__all__ = ["checkup"]
