"""Killed at any moment: every file in the output folder is whole or absent."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress

import numpy as np
import pytest

from activehuber.cli.audit import FILES
from activehuber.data.datasets import make_corrupted_diabetes

# Fixed parameters, and the imports done first: then most kills hit the work and the writing.
CHILD = """
import sys
import activehuber.persistence.model_files
from activehuber.cli.app import run
from activehuber.audit import choice
from tests.audit.test_table import Quick
choice._chooser = lambda options, views: Quick(options.classify)
print("ready", flush=True)
sys.stdin.readline()
for turn in range(1000):
    code = run(["audit", sys.argv[1], "--target", "progression", "--id", "patient",
                "-o", sys.argv[2], "--force", "--json"])
    assert code == 0, code
"""


def whole(path) -> bool:
    """Whether a file of the output is complete."""
    content = path.read_bytes()
    if path.name == "model.skops":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.testzip() is None and json.loads(archive.read("values.json")) != {}
    if path.name == "report.html":
        return content.rstrip().endswith(b"</html>")
    lines = content.decode().splitlines()
    count = {"labels.csv": 354, "predictions.csv": 88}[path.name]
    return len(lines) == count + 1 and content.endswith(b"\n")


def kill_many(tmp_path, kills: int, longest: float) -> list[int]:
    """Kill a run over and over; returns how many files were there each time."""
    table = tmp_path / "d.csv"
    make_corrupted_diabetes().frame.to_csv(table, index=False)
    rng = np.random.default_rng(0)
    seen = []
    for turn in range(kills):
        # A new folder every other time: absent files, and replaced ones.
        out = tmp_path / f"out{turn // 2}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(table), str(out)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.stdin.write(b"\n")
        child.stdin.flush()
        time.sleep(float(rng.uniform(0.0, longest)))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        here = [item.name for item in out.iterdir()] if out.exists() else []
        # Nothing can clean up after this signal; what is in the making has a name of its own.
        present = sorted(name for name in here if not name.endswith(".tmp"))
        assert set(present) <= set(FILES)
        for name in present:
            assert whole(out / name), (turn, name)
        seen.append(len(present))
    return seen


def test_five_kills(tmp_path):
    kill_many(tmp_path, 5, longest=1.0)


@pytest.mark.slow
def test_fifty_kills(tmp_path):
    seen = kill_many(tmp_path, 50, longest=1.0)
    # Some before the first file, some after: else the kills came too early or too late.
    assert min(seen) == 0 and max(seen) == len(FILES)


def test_files_come_all_at_once_or_one_by_one(tmp_path, monkeypatch):
    """Stopped between any two steps of the writing, whatever is there is whole."""
    from activehuber.runtime.files import write_files

    contents = {"a": b"new a", "b": b"new b"}
    steps = {"fsync": 0, "replace": 0}

    class Stopped(BaseException):
        pass

    def stop_at(name, number):
        original = getattr(os, name)

        def step(*arguments):
            if steps[name] == number:
                raise Stopped
            steps[name] += 1
            return original(*arguments)

        return step

    for old in (False, True):
        for name in steps:
            for number in range(2):
                folder = tmp_path / f"{old}{name}{number}"
                if old:
                    write_files(folder, {"a": b"old a", "b": b"old b"})
                steps[name] = 0
                with monkeypatch.context() as patch:
                    patch.setattr(os, name, stop_at(name, number))
                    with suppress(Stopped):
                        write_files(folder, contents, force=True)
                present = (
                    {p.name: p.read_bytes() for p in folder.iterdir()}
                    if folder.exists()
                    else {}
                )
                for key, content in present.items():
                    assert content in (contents[key], f"old {key}".encode())
                if not old and name == "fsync":
                    assert present == {}
                assert not [p for p in tmp_path.iterdir() if p.name.endswith(".tmp")]
