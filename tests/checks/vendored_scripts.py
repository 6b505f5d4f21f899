"""The JavaScript libraries of the report page, fetched from the npm registry by name and version.

`python -m tests.checks.vendored_scripts` fetches those that scripts.json lists and writes them and
their licences, if they have the listed sha256. With --new it takes what it gets, and lists it:
for a change of version, after reading what changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import tarfile
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "onnxq" / "reporting" / "vendored"
LIST = FOLDER / "scripts.json"


@dataclass(frozen=True)
class Script:
    """One file of a package."""

    package: str
    version: str
    file: str
    sha256: str
    license: str

    @property
    def path(self) -> Path:
        """Where it lies."""
        return FOLDER / Path(self.file).name

    @property
    def stem(self) -> str:
        """The name of its licence, without the ending."""
        return self.package.rpartition("/")[2]


def scripts() -> list[Script]:
    """The libraries of the page."""
    return [Script(**each) for each in json.loads(LIST.read_text(encoding="utf-8"))]


def fetch(script: Script, *, new: bool) -> Script:
    """Write a library and its licence; returns it as it is listed."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"{script.package}@{script.version}"
        packed = subprocess.run(
            ["npm", "pack", "--silent", "--pack-destination", folder, name],
            capture_output=True,
            text=True,
            check=True,
        )
        with tarfile.open(Path(folder) / packed.stdout.split()[-1]) as archive:
            text, licence = (
                archive.extractfile(f"package/{inside}").read()  # type: ignore[union-attr]
                for inside in (script.file, "LICENSE")
            )
    digest = hashlib.sha256(text).hexdigest()
    if digest != script.sha256 and not new:
        raise SystemExit(f"{name}: {script.file} has sha256 {digest}, not {script.sha256}")
    script.path.write_bytes(text)
    (FOLDER / f"{script.stem}.LICENSE").write_bytes(licence)
    return replace(script, sha256=digest)


def main() -> None:
    """Fetch all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--new", action="store_true", help="take other contents, and list them")
    new = parser.parse_args().new
    found = [asdict(fetch(script, new=new)) for script in scripts()]
    LIST.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
