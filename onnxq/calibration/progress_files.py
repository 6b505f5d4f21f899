"""The files of a calibration that is not finished.

One process keeps what it knows in one file. Several leave a file for each part that is done:
`all.stats.partial-3-of-8`. Every file names the run it belongs to, so that it is not taken for
part of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from onnxq.calibration.in_parts import Task
from onnxq.calibration.observing import Part, earlier_run, name_of_run
from onnxq.calibration.statistics import Statistics
from onnxq.errors import LoadError


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
        own = {self._of(part) for part in parts} or {self.whole}
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

    def load(self, part: Part, begun: Statistics, task: Task) -> Statistics | None:
        """The statistics of a part, if it was done before."""
        path = self._of(part)
        if not path.exists():
            return None
        expected = Statistics(begun.model, begun.tensors)
        expected.unfinished = name_of_run(task.data, part, task.most)
        found = earlier_run(path, expected)
        found.unfinished = ""
        return found

    def save(self, part: Part, found: Statistics, task: Task) -> None:
        """Keep the statistics of a part."""
        kept = Statistics(found.model, found.tensors, found.samples)
        kept.unfinished = name_of_run(task.data, part, task.most)
        kept.save(self._of(part))

    def _of(self, part: Part) -> Path:
        return self.whole.with_name(f"{self.whole.name}-{part.index + 1}-of-{part.of}")


__all__ = ["ProgressFiles"]
