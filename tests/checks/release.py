"""Build the release and try it: `python -m tests.checks.release`.

The files that git knows are copied, so that nothing else can help. The sdist and the wheel are
built with a compiler that always fails; each is installed in a new environment, with the pinned
versions, and must run the demonstration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

from onnxq import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = {"onnxq", "passes", "torch_bridge"}
NO_COMPILER = {"CC": "false", "CXX": "false"}
SHIPPED = ("onnxq/py.typed", "onnxq/cli/schemas/parts.json", "onnxq/reporting/page/report.html.j2")


def run(*words: object, folder: Path, **more: str) -> str:
    """Run a command that must succeed; returns what it printed."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    environment: Mapping[str, str] = kept | NO_COMPILER | more
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}\nexit code {done.returncode}")
    return done.stdout


def copy(to: Path) -> None:
    """The files of the project, without what lies beside them."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)


def check_wheel(wheel: Path) -> None:
    """Whether the wheel has the version and the files that it should, and no others."""
    names = zipfile.ZipFile(wheel).namelist()
    problems = [f"{name} is missing" for name in SHIPPED if name not in names]
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    problems += [f"{top} does not belong there" for top in tops - PACKAGES]
    problems += [f"{name} was compiled" for name in names if name.endswith((".so", ".pyd"))]
    if wheel.name.split("-")[1] != __version__:
        problems.append(f"{wheel.name} is not of version {__version__}")
    if problems:
        sys.exit("\n".join(problems))


def try_out(package: Path, folder: Path) -> None:
    """Install a package in a new environment, and use it."""
    folder.mkdir()
    venv.create(folder / "venv", with_pip=True)
    python, onnxq = (folder / "venv" / "bin" / name for name in ("python", "onnxq"))
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input")
    pinned = ("-c", ROOT / "constraints.txt")
    run(*pip, *pinned, "setuptools", "wheel", folder=folder)
    run(*pip, *pinned, "--no-build-isolation", package, folder=folder)
    if run(onnxq, "--version", folder=folder).split() != ["onnxq", __version__]:
        sys.exit(f"{package.name} is of another version")
    run(onnxq, "doctor", folder=folder)
    run(onnxq, "schema", "convert", folder=folder)
    print(run(onnxq, "demo", folder=folder))


def main() -> None:
    """Build both, and try both."""
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name, "source"), Path(name, "made")
        copy(source)
        run(sys.executable, "-m", "build", "--no-isolation", "-o", made, source, folder=source)
        (wheel,), (sdist,) = made.glob("*.whl"), made.glob("*.tar.gz")
        check_wheel(wheel)
        for package in (wheel, sdist):
            print(f"{package.name}, {package.stat().st_size >> 10} KiB", flush=True)
            try_out(package, Path(name, package.suffix))
    print("the release installs and works without a compiler")


if __name__ == "__main__":
    main()
