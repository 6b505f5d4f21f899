"""What a report finds, each with the command or setting that acts on it.

Findings of lint are told as they are, those of one rule together. The rest follows from what was
measured: outputs that lose too much, layers that add most of the noise, grids that cut values off
or use few of their codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxq.calibration.trials.trial import LOW_SQNR
from onnxq.lint.rule import Finding, Severity
from onnxq.proof.prove import Proof
from onnxq.proof.verify import Report
from onnxq.reporting.commands import RULES, Names, rules
from onnxq.reporting.distribution import Distribution
from onnxq.reporting.network import Layer

_CLIPPED = 0.005
_MOSTLY_CLIPPING = 0.5
"""A range is too narrow if cutting off costs more than rounding does."""
_FEW_CODES = 0.25
_NOISY = 0.01
_MOST_NOISY = 3
_ORDER = ("error", "warning", "info")


@dataclass(frozen=True)
class Advice:
    """One finding, and what to do about it."""

    severity: Severity
    rule: str
    message: str
    where: tuple[str, ...] = ()
    """Layers and tensors, by their names in the model."""
    fix: str = ""
    """The next step in words."""
    command: str = ""
    settings: str = ""
    """The content of the file of rules that `command` names."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return vars(self) | {"where": list(self.where)}


def advise(
    names: Names,
    *,
    findings: Sequence[Finding] = (),
    proofs: Sequence[Proof] = (),
    report: Report | None = None,
    layers: Sequence[Layer] = (),
    distributions: Sequence[Distribution] = (),
) -> tuple[Advice, ...]:
    """All findings, the worst first."""
    found = [
        *_failed(names, proofs),
        *_losses(names, report),
        *_of_lint(names, findings, layers),
        *_noisy(names, layers),
        *_of_grids(names, layers, distributions),
        *_unquantized(names, layers),
    ]
    return tuple(sorted(found, key=lambda advice: _ORDER.index(advice.severity)))


def _failed(names: Names, proofs: Sequence[Proof]) -> Iterator[Advice]:
    for proof in proofs:
        if not proof.passed:
            worst = proof.report.worst
            where = () if worst is None else (worst.name,)
            yield Advice(
                "error",
                "not-proven",
                proof.refused or f"{proof.what}: the outputs differ by more than is tolerated",
                where,
                "compare layer by layer: the first layer that differs is where to look",
                names.verify(),
            )


def _losses(names: Names, report: Report | None) -> Iterator[Advice]:
    low = [o for o in (report.outputs if report is not None else ()) if o.sqnr < LOW_SQNR]
    if low:
        worst = min(low, key=lambda o: o.sqnr)
        yield Advice(
            "warning",
            "low-sqnr",
            f"an output has {max(worst.sqnr, -99.0):.1f} dB of signal to noise: below "
            f"{LOW_SQNR:g} dB expect a loss of accuracy",
            tuple(o.name for o in low),
            "keep the few layers in float that cost most, as many as reach this ratio",
            names.quantize("--target-sqnr", f"{LOW_SQNR + 5:g}"),
        )


# -- lint ---------------------------------------------------------------------------------------


def _of_lint(
    names: Names, findings: Sequence[Finding], layers: Sequence[Layer]
) -> Iterator[Advice]:
    groups: dict[tuple[str, ...], list[Finding]] = {}
    is_float = not any(layer.fate.precision == "integer" for layer in layers)
    for finding in findings:
        if is_float and finding.rule == "missing-range":
            continue  # of a float model all are missing
        key = (finding.rule, finding.severity, finding.fix, _without_names(finding.message))
        groups.setdefault(key, []).append(finding)
    outputs = {layer.name: layer.output for layer in layers}
    concerned = _readers(layers)
    for (rule, _, fix, _), group in groups.items():
        first = group[0]
        where = tuple(dict.fromkeys(_name(f.where) for f in group))
        command, settings = _command(names, rule, outputs.get(where[0], where[0]), fix), ""
        wanted = [layer for name in where for layer in concerned.get(name, ())]
        if rule == "missing-range" and wanted:
            # A rule about a layer quantizes it, even one that is as fast in float.
            settings = rules(dict.fromkeys(wanted), {"bits": 8})
            command = names.quantize("--settings", RULES)
        yield Advice(first.severity, rule, first.message, where, fix, command, settings)


def _without_names(message: str) -> str:
    """A message with what differs between places left out: names and numbers."""
    return re.sub(r"'[^']*'( \(\w+\))?|-?\d[\d.e+-]*", "", message)


def _name(where: str) -> str:
    """The node or tensor in what lint calls the place: 'name' (Op), or (Op producing 'tensor')."""
    told = re.match(r"'(.*)' \(\S+\)$|\(\S+ producing '(.*)'\)$", where)
    return told[1] or told[2] if told else where


def _command(names: Names, rule: str, tensor: str, fix: str) -> str:
    if fix.startswith("nothing to do"):
        return ""
    known = {
        "scheme": names.convert("--allow-requantize"),
        "missing-range": names.quantize(),
        "equal-parameters": names.quantize(),
        "pair-saturation": names.convert("--variant", "avx2") if "--variant avx2" in fix else "",
        "onnxruntime-refuses": names.convert(),
        "weight-requantized": names.convert(),
        "gemm-bias-scale": names.convert(),
    }
    return known.get(rule) or names.explain(tensor)


# -- what was measured ----------------------------------------------------------------------------


def _noisy(names: Names, layers: Sequence[Layer]) -> Iterator[Advice]:
    """The layers that add most of the noise."""
    noisy = [layer for layer in layers if (layer.added or 0.0) > _NOISY]
    noisy.sort(key=lambda layer: -(layer.added or 0.0))
    worst = [layer.name for layer in noisy[:_MOST_NOISY]]
    if worst:
        yield Advice(
            "warning",
            "noisy-layers",
            f"rounding in {_many(len(worst), 'layer')} adds up to {_percent(noisy[0].added)} of "
            "noise to the signal",
            tuple(worst),
            "keep such layers in float, or give them 16 bits where the target has them "
            '({"bits": 16} instead of "float")',
            names.quantize("--settings", RULES),
            rules(worst, "float"),
        )


def _of_grids(
    names: Names, layers: Sequence[Layer], distributions: Sequence[Distribution]
) -> Iterator[Advice]:
    """Grids that cut values off, and grids whose codes are hardly used."""
    readers = _readers(layers)
    seen = [d for d in distributions if d.role == "activation" and d.grid is not None]
    clipped = [d for d in seen if d.clipped > _CLIPPED and d.clip_noise > _MOSTLY_CLIPPING]
    clipped.sort(key=lambda d: -d.clipped)
    idle = sorted((d for d in seen if d.used < _FEW_CODES), key=lambda d: d.used)

    def advice(severity: Severity, rule: str, of: list[Distribution], *words: str) -> Advice:
        where = tuple(d.tensor for d in of)
        selected = dict.fromkeys(name for tensor in where for name in readers.get(tensor, ()))
        if not selected:  # outputs of the network: a rule is about what a layer reads
            command = names.quantize("--method", "min-max")
            return Advice(severity, rule, words[0], where, words[1], command)
        settings = rules(selected, {"method": "min-max"})
        command = names.quantize("--settings", RULES)
        return Advice(severity, rule, words[0], where, words[1], command, settings)

    if clipped:
        yield advice(
            *("warning", "saturated", clipped),
            f"up to {_percent(clipped[0].clipped)} of the values of "
            f"{_many(len(clipped), 'tensor')} are beyond the range and are cut off",
            "let the ranges contain all values",
        )
    if idle:
        yield advice(
            *("info", "few-codes", idle),
            f"the values of {_many(len(idle), 'tensor')} use as little as "
            f"{_percent(idle[0].used)} of the range: most codes never occur",
            "take the ranges from these values, if they are typical",
        )


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.2g} %"


def _readers(layers: Sequence[Layer]) -> Mapping[str, list[str]]:
    """The layers that read each tensor or weight: a rule for what they read names them."""
    found: dict[str, list[str]] = {}
    for layer in layers:
        for tensor in filter(None, (*layer.reads, layer.weight)):
            found.setdefault(tensor, []).append(layer.name)
    return found


def _unquantized(names: Names, layers: Sequence[Layer]) -> Iterator[Advice]:
    if layers and not any(layer.fate.precision == "integer" for layer in layers):
        yield Advice(
            "info",
            "float-model",
            "no operator computes on codes",
            fix="quantize the model with typical inputs",
            command=names.quantize(),
        )


def count(found: Iterable[Advice]) -> dict[str, int]:
    """How many findings there are of each severity."""
    each: list[str] = [advice.severity for advice in found]
    return {severity: each.count(severity) for severity in _ORDER}


__all__ = ["Advice", "advise", "count"]
