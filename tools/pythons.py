"""Run `make test` on every interpreter that is there.

python tools/pythons.py [VERSION ...]

An interpreter is looked for as python3.x on the PATH and among the versions of pyenv. Each gets
an environment of its own in build/pythons. Fails if no interpreter is found, or tests fail.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def said(*command: str) -> str:
    """What a command prints; nothing if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def find(version: str) -> str | None:
    """The path of an interpreter of this version."""
    installed = said("pyenv", "versions", "--bare").split()
    chosen = [name for name in installed if name.startswith(f"{version}.")]
    folders = [said("pyenv", "prefix", name) for name in chosen]
    candidates = [shutil.which(f"python{version}"), *(f"{f}/bin/python" for f in folders)]
    # A name on the PATH may be one of pyenv's, which works only where that version is chosen.
    tell = "import sys, venv; print(sys.version_info[0], sys.version_info[1], sep='.')"
    working = (path for path in candidates if path and said(path, "-c", tell) == version)
    return next(working, None)


def passes(version: str, python: str) -> bool:
    """Whether the tests pass in an environment of this interpreter."""
    print(f"--- Python {version}: {python}", flush=True)
    command = ["make", f"VENV=build/pythons/{version}", f"PYTHON={python}", "test"]
    return subprocess.run(command, cwd=HOUSE).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    found = {version: find(version) for version in parser.parse_args().versions}
    for version, python in found.items():
        print(f"Python {version}: {python or 'not found'}", flush=True)
    there = {version: python for version, python in found.items() if python}
    if not there:
        sys.exit("none of these interpreters is there")
    failed = [version for version, python in there.items() if not passes(version, python)]
    if failed:
        sys.exit(f"tests failed on Python {', '.join(failed)}")


if __name__ == "__main__":
    main()
