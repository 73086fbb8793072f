"""Run make as a stranger would, in a checkout that cannot be written to.

python tools/elsewhere.py [TARGET ...] [--python PYTHON] [--seed SEED]

The files that git knows are copied and made read-only. There `make check test demo`, or other
targets, run with the environment and all that they write in another folder. The locale is C,
the time zone is the first to see a new day, hashes are random, and tests run in an order drawn
by SEED. Root becomes the user nobody.
"""

from __future__ import annotations

import argparse
import os
import pwd
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
# What would lead back to the house and the user at home.
HOMELY = ("ACTIVEHUBER_", "MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV", "XDG_")
USABLE = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"


def plain_user() -> dict:
    """What makes a process of root one of nobody, for `subprocess`; nothing for others."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def usable_python(named: str | None, user: dict) -> str:
    """An interpreter that the plain user may run; root's own may be out of reach."""
    own, system = (shutil.which("python3", path=path) for path in (None, os.defpath))
    for python in [named] if named else filter(None, (own, system)):
        try:
            if subprocess.run([python, "-c", USABLE], cwd="/", **user).returncode == 0:
                return python
        except OSError:
            continue
    sys.exit("no Python 3.11 or newer with venv that a plain user may run: give --python")


def copy_read_only(target: Path) -> None:
    """Copy all files that git knows, and take the right to write from everybody."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=HOUSE, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HOUSE / name, target / name)
    for path in (target, *target.rglob("*")):
        rights = path.stat().st_mode | (0o555 if path.is_dir() else 0o444)
        path.chmod(rights & ~0o222)


def environment(own: Path, seed: int) -> dict[str, str]:
    """Another place, another language, another day."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(HOMELY)}
    return kept | {
        "HOME": str(own),
        "TMPDIR": str(own),
        "LC_ALL": "C",
        "TZ": "Pacific/Kiritimati",
        "PYTHONHASHSEED": "random",
        "PYTEST_ADDOPTS": f"--shuffle={seed}",
    }


def run(folder: Path, targets: list[str], python: str, seed: int, user: dict) -> int:
    """Run make in a copy inside `folder`; what it returned."""
    source, own = folder / "source", folder / "own"
    copy_read_only(source)
    folder.chmod(0o755)
    own.mkdir()
    if user:
        os.chown(own, user["user"], user["group"])
    variables = [f"VENV={own / 'venv'}", f"DEMO={own / 'demo'}", f"PYTHON={python}"]
    print(f"make {' '.join(targets)} with {python}, --seed {seed}", flush=True)
    done = subprocess.run(
        ["make", *variables, *targets], cwd=source, env=environment(own, seed), **user
    )
    return done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", default=["check", "test", "demo"])
    parser.add_argument("--python", help="the interpreter to make the environment with")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    user = plain_user()
    python = usable_python(arguments.python, user)
    with tempfile.TemporaryDirectory(prefix="elsewhere-") as folder:
        sys.exit(run(Path(folder), arguments.targets, python, arguments.seed, user))


if __name__ == "__main__":
    main()
