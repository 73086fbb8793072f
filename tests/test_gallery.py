"""Every example runs alone, quickly and without a warning; those of the gallery draw."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parent.parent / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.glob("plot_*.py"))
# These write a folder that they are told.
SCRIPTS = sorted(GALLERY.parent.glob("*.py"))
# An example takes less than 30 s on a quiet core. CPU time is what counts here, with room for
# a loaded machine, where caches are cold and clocks are slow.
MOST_SECONDS = 60

# `show` would warn that Agg has no window. Children count too: nothing may hide in them.
DRIVER = """
import json, os, runpy, sys
import matplotlib.pyplot as plt
plt.show = lambda: None
runpy.run_path(sys.argv[1], run_name="__main__")
figures = [plt.figure(number) for number in plt.get_fignums()]
for figure in figures:
    figure.canvas.draw()
# Empty axes have ten children: frame, axes and titles.
drawn = [sum(len(ax.get_children()) > 10 for ax in figure.axes) for figure in figures]
used = os.times()
seconds = used.user + used.system + used.children_user + used.children_system
print(json.dumps({"drawn": drawn, "seconds": seconds}))
"""


def run(path, folder):
    """What a fresh process says of an example: axes drawn a figure, and CPU seconds."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", DRIVER, str(path)],
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_there_are_examples():
    assert len(EXAMPLES) >= 8
    assert (GALLERY / "README.rst").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    if "count_people" in path.stem:
        pytest.importorskip("cv2", reason="the extra `crowd` is not installed")
    said = run(path, tmp_path)
    assert said["drawn"] and all(said["drawn"])
    assert said["seconds"] < MOST_SECONDS
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path, tmp_path):
    if "count_people" in path.stem:
        pytest.importorskip("cv2", reason="the extra `crowd` is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), "--output", str(tmp_path / "out")],
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [made.name for made in tmp_path.iterdir()] == ["out"]
    # The last line names what to look at.
    assert any(Path(word).is_file() for word in done.stdout.splitlines()[-1].split())
