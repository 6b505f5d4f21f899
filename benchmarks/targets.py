"""What must hold, and whether it does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MAX_RATIO = 3.0
MAX_GROWTH = 4.3
MAX_MEGABYTES = 300
MAX_ANONYMOUS = (300, 1000, 2000)
"""MB of anonymous memory: inspect and convert one weight of 576 MiB, convert 4.3 GiB."""
FASTER_THAN = ("onnxslim", "onnxscript")


@dataclass(frozen=True)
class Verdict:
    """One line of the table; `met` is None where the other tool is not installed."""

    what: str
    target: str
    measured: str
    met: bool | None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def judge(results: dict[str, Any]) -> list[Verdict]:
    """All targets, in the order of the measurements."""
    speed = results["speed"]
    job = f"fold BN and insert Q/DQ, {speed['nodes']} nodes"
    verdicts = [
        Verdict(
            f"{job}: CPU time / hand-written protobuf loop",
            f"<= {MAX_RATIO:.1f}x",
            f"{speed['ratio']:.2f}x",
            speed["ratio"] <= MAX_RATIO,
        ),
        Verdict(
            f"{job}: CPU time / that of a quarter of the nodes",
            f"<= {MAX_GROWTH:.1f}x",
            f"{speed['growth']:.2f}x",
            speed["growth"] <= MAX_GROWTH,
        ),
    ]
    reading = results["reading"]
    verdicts.append(
        Verdict(
            f"read QDQ, {reading['nodes']} nodes: CPU time / that of a quarter of the nodes",
            f"<= {MAX_GROWTH:.1f}x",
            f"{reading['growth']:.2f}x",
            reading["growth"] <= MAX_GROWTH,
        )
    )
    memory = results["memory"]
    ours = memory["tools"]["onnxq"]
    verdicts.append(
        Verdict(
            f"rewrite two weights of {memory['bytes'] / 2**30:.2f} GiB: peak memory",
            f"< {MAX_MEGABYTES} MB",
            _megabytes(ours),
            "megabytes" in ours and ours["megabytes"] < MAX_MEGABYTES,
        )
    )
    verdicts += [
        Verdict(
            f"{job['job']} ({job['bytes'] / 2**30:.2f} GiB): anonymous memory",
            f"< {limit} MB",
            _megabytes(job),
            None if "skipped" in job else "megabytes" in job and job["megabytes"] < limit,
        )
        for job, limit in zip(results["quantized"], MAX_ANONYMOUS, strict=True)
    ]
    folding = results["folding"]
    verdicts += [_faster(folding, peer) for peer in FASTER_THAN]
    return verdicts


def _faster(folding: dict[str, Any], peer: str) -> Verdict:
    ours, theirs = folding["tools"]["onnxq"], folding["tools"][peer]
    what = f"fold BN, {folding['nodes']} nodes: CPU time of {peer} / onnxq"
    if "skipped" in theirs:
        return Verdict(what, "> 1x", theirs["skipped"], None)
    if "seconds" not in ours or "failed" in theirs:
        failed = ours if "seconds" not in ours else theirs
        return Verdict(what, "> 1x", seconds(failed), False)
    ratio = theirs.get("seconds", theirs.get("over")) / ours["seconds"]
    more = "> " if "over" in theirs else ""
    return Verdict(what, "> 1x", f"{more}{ratio:.1f}x", ratio > 1)


def seconds(result: dict[str, Any]) -> str:
    """The outcome of one child in words."""
    if "seconds" in result:
        return f"{result['seconds']:.2f} s"
    if "over" in result:
        return f"> {result['over']} s"
    return str(result.get("skipped") or f"failed: {result['failed']}")


def _megabytes(result: dict[str, Any]) -> str:
    return f"{result['megabytes']:.0f} MB" if "megabytes" in result else seconds(result)


__all__ = ["Verdict", "judge", "seconds"]
