"""The files of a calibration that is not finished.

One process keeps what it knows in one file. Of several, each part has a file:
`all.stats.partial-3-of-8`. Workers on this machine write to it on the way; those of a cluster may
see other disks, so only parts that are done are kept of them. Every file names the run it belongs
to, so that it is not taken for part of another, and whether its part is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from onnxq.errors import LoadError
from onnxq.observing.observe import Part, earlier_run, name_of_run
from onnxq.observing.statistics import Statistics
from onnxq.running.records import Data

_DONE = ", done"


@dataclass(frozen=True)
class ProgressFiles:
    """The files of one run, next to each other."""

    whole: Path
    """The file of a single process."""

    @classmethod
    def beside(cls, output: Path) -> ProgressFiles:
        """Those of a run that will write `output`."""
        return cls(output.with_name(f"{output.name}.partial"))

    def found(self) -> list[Path]:
        """Those that exist."""
        if not self.whole.parent.is_dir():
            return []
        pattern = re.compile(rf"{re.escape(self.whole.name)}(-\d+-of-\d+)?")
        return sorted(p for p in self.whole.parent.iterdir() if pattern.fullmatch(p.name))

    def check(self, parts: Iterable[Part] = ()) -> None:
        """Raise if there are files of a run that was divided otherwise."""
        own = {self.of(part) for part in parts} or {self.whole}
        other = [path for path in self.found() if path not in own]
        if other:
            raise LoadError(
                f"'{other[0]}' is of a run with another number of processes",
                fix="continue with the --jobs or the --cluster of that run, or remove the file to "
                "start anew",
            )

    def remove(self) -> None:
        """Remove them: the run is finished."""
        for path in self.found():
            path.unlink(missing_ok=True)

    def load(
        self, part: Part, begun: Statistics, data: Data, most: int | None
    ) -> Statistics | None:
        """The statistics of a part that was done before; one that was begun is only checked."""
        path = self.of(part)
        if not path.exists():
            return None
        done = Statistics.load(path).unfinished.endswith(_DONE)
        name = name_of_run(data, part, most) + (_DONE if done else "")
        found = earlier_run(path, Statistics(begun.model, begun.tensors, unfinished=name))
        found.unfinished = ""
        return found if done else None

    def save(self, part: Part, found: Statistics, data: Data, most: int | None) -> None:
        """Keep the statistics of a part that is done."""
        name = name_of_run(data, part, most) + _DONE
        replace(found, unfinished=name).save(self.of(part))

    def of(self, part: Part) -> Path:
        """The file of a part."""
        return self.whole.with_name(f"{self.whole.name}-{part.index + 1}-of-{part.of}")


__all__ = ["ProgressFiles"]
