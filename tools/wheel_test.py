"""Install a wheel, an sdist and every extra into environments of their own, and use them.

python tools/wheel_test.py DIST [--only NAME ...] [--jobs 2]

DIST holds one wheel and one sdist, as `python -m build` leaves them. The core gets what the
package itself asks for; an extra is added to the wheel. Each environment then runs
tests/smoke.py, from outside of the repository.
"""

from __future__ import annotations

import argparse
import email
import email.message
import re
import shutil
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SMOKE = Path(__file__).resolve().parent.parent / "tests" / "smoke.py"
# All that the core may ask for.
CORE = {"numpy", "scipy", "scikit-learn", "threadpoolctl"}


def read_metadata(wheel: Path) -> email.message.Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def check_core(metadata: email.message.Message) -> None:
    """Stop if the core asks for more than it may."""
    required = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    names = {re.match(r"[A-Za-z0-9._-]+", requirement)[0] for requirement in required}
    if names != CORE:
        sys.exit(f"the core asks for {', '.join(sorted(names))}")


def try_out(folder: Path, requirement: str, smoke: str) -> str:
    """Install into a new environment in `folder`, run one smoke test there, remove it.

    Returns
    -------
    str
        What the smoke test printed.
    """
    start = time.perf_counter()
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    python = folder / scripts / "python"
    # The pip at hand installs for the environment, which then needs none of its own; most
    # modules are never imported here and need not be compiled.
    run(
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python),
        *("install", "--quiet", "--no-compile", requirement),
    )
    # -I: neither the working directory nor PYTHONPATH may stand in for what was installed.
    said = run(python, "-I", SMOKE, smoke, cwd=folder)
    shutil.rmtree(folder)
    return f"{said.rstrip()}, {time.perf_counter() - start:.0f} s"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command prints; the end of everything if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("--only", nargs="+", help="wheel, sdist or extras; all if not given")
    parser.add_argument("--jobs", type=int, default=2, help="environments at a time")
    arguments = parser.parse_args()
    dist = arguments.dist.resolve()
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    work = {"wheel": (str(wheel), "core"), "sdist": (str(sdist), "core")}
    metadata = read_metadata(wheel)
    check_core(metadata)
    extras = metadata.get_all("Provides-Extra", [])
    work |= {extra: (f"{wheel}[{extra}]", extra) for extra in extras}
    names = arguments.only or list(work)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        tries = [pool.submit(try_out, dist / f"venv-{name}", *work[name]) for name in names]
        for name, one in zip(names, tries, strict=True):
            try:
                print(f"--- {name}\n{one.result()}", flush=True)
            except SystemExit:
                pool.shutdown(cancel_futures=True)
                raise


if __name__ == "__main__":
    main()
