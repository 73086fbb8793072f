"""The bench of the counter: parts of a camera, what is scored, what is said of it."""

import numpy as np
import pytest

from activehuber.crowd.frames import write_images
from activehuber.crowd.synthetic import synthetic_camera
from experiments.crowd import bench, cameras
from experiments.paper.command import write_outcome
from experiments.paper.outcome import Run

N = 110


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A quick run on a folder with one camera and one that never was."""
    root = tmp_path_factory.mktemp("data")
    clip = synthetic_camera(N, height=90, width=120, people=(2, 12), random_state=3)
    write_images(root / "cameras" / "plaza" / "frames", clip.images())
    lines = [f"{number},{count:.0f}" for number, count in enumerate(clip.counts, 1)]
    (root / "cameras" / "plaza" / "counts.csv").write_text("\n".join(["frame,count", *lines]))
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACTIVEHUBER_DATA", str(root))
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        never = {"n_frames": N, "height": 90, "width": 120, "people": (1, 6)}
        patch.setattr(cameras, "SYNTHETIC", (never,))
        outcome = bench.bench(Run(True, said.append))
    return outcome, said


def test_every_camera_and_part_is_there(ran):
    outcome, said = ran
    keys = dict.fromkeys(cell.keys for cell in outcome.tables[0].cells)
    parts = ("first half", "second half", "every tenth")
    assert list(keys) == [(name, part) for name in ("plaza", "synthetic 0") for part in parts]
    assert "without Mall" in said[0] and len(said) == 7
    figures = {(cell.keys, cell.metric): cell.ours for cell in outcome.tables[0].cells}
    for key in keys:
        assert 0.0 < figures[key, "over the mean"] < 2.0
        assert 0.0 <= figures[key, "coverage, %"] <= 100.0


def test_notes_and_findings_say_what_was_done(ran, tmp_path):
    outcome, _ = ran
    assert bench.LOOKS in outcome.tables[0].notes
    assert len(outcome.findings) == 6 and all(text.endswith(".") for text in outcome.findings)
    write_outcome(outcome, tmp_path, {"extent": "quick"})
    assert (tmp_path / "crowd-cameras.md").is_file()


def test_wrong_counts_lie_between_those_given(rng):
    counts = rng.integers(3, 9, 100).astype(float)
    places = np.arange(50)
    found = bench.wrong_counts(counts, places, 0)
    changed = np.flatnonzero(found != counts)
    assert set(changed) <= set(places) and 0 < len(changed) <= 10
    assert found.min() >= 3 and found.max() <= 8


def test_frames_to_count_are_never_among_those_given(ran):
    clip = synthetic_camera(40, height=60, width=80, people=(1, 3))
    camera = cameras.Camera("Mall", True, None, None, np.tile(clip.counts, 50), 1.0)
    found = bench.parts(camera)
    assert list(found)[3:] == ["1–800", "25 of 1–800"]
    for places, rest in found.values():
        assert not set(places) & set(rest) and len(places) and len(rest)
