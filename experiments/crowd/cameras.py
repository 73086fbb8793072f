"""Cameras with known counts: Mall, folders of others, and some that never were."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from activehuber._typing import Vector
from activehuber.crowd.background import find_backgrounds, with_level
from activehuber.crowd.counts import read_counts
from activehuber.crowd.features import Described, describe_frames
from activehuber.crowd.frames import Frames, open_frames, write_images
from activehuber.crowd.perspective import learn_heights
from activehuber.crowd.scene import Scene, make_scene
from activehuber.crowd.synthetic import synthetic_camera
from experiments.paper import data
from experiments.paper.files import MissingDataError
from experiments.paper.outcome import Run

# Cameras that never were: few and many people, near and far, with noise, drifting light, slow
# frames, without shadows, with many who stand.
SYNTHETIC: tuple[dict[str, Any], ...] = (
    {"people": (2, 30)},
    {"people": (1, 8), "perspective": 0.25},
    {"n_frames": 300, "people": (2, 12), "standing": 0.3},
    {"people": (5, 40), "perspective": 0.6},
    {"n_frames": 240, "people": (1, 6), "noise": 8.0},
    {"people": (2, 20), "light_drift": 0.4},
    {"n_frames": 600, "people": (3, 15), "shadows": False},
    {"people": (0, 10), "perspective": 0.3, "fps": 2.0},
    {"n_frames": 300, "people": (10, 50), "height": 180},
    {"n_frames": 500, "people": (1, 12), "height": 360, "width": 480, "standing": 0.2},
)
FIRST_SEED = 10


@dataclass(frozen=True)
class Camera:
    """A camera and the counts of all its frames.

    Attributes
    ----------
    name : str
    real : bool
        Whether there was such a camera.
    scene : Scene
    described : Described
        Of n frames.
    counts : ndarray of shape (n,)
    rate : float
        Frames described a second, the search for the empty scene included.
    """

    name: str
    real: bool
    scene: Scene
    described: Described
    counts: Vector
    rate: float


def cameras(run: Run) -> Iterator[Camera]:
    """All that are at hand; of those that never were two if it is to be quick."""
    try:
        known = data.mall_frames()
    except MissingDataError as error:
        run.report(f"without Mall: {error}")
    else:
        frames = open_frames(known.folder)
        yield _seen("Mall", True, frames, known.counts)
        map_of = {"roi": known.roi, "perspective": known.perspective}
        yield _seen("Mall, region and map given", True, frames, known.counts, **map_of)
    home = Path(os.environ.get("ACTIVEHUBER_DATA", ".")) / "cameras"
    for folder in sorted(path.parent for path in home.glob("*/counts.csv")):
        frames = open_frames(folder / "frames")
        counts = read_counts(folder / "counts.csv", frames).values.sum(axis=1)
        yield _seen(folder.name, True, frames, counts)
    for k, params in enumerate(SYNTHETIC[:2] if run.quick else SYNTHETIC):
        clip = synthetic_camera(**params, random_state=FIRST_SEED + k)
        with tempfile.TemporaryDirectory() as name:
            write_images(Path(name), clip.images())
            yield _seen(f"synthetic {k}", False, open_frames(name), clip.counts)


def _seen(name: str, real: bool, frames: Frames, counts: Vector, **given: Any) -> Camera:
    def silent(done: int, total: int) -> None:
        pass

    started = time.perf_counter()
    scene = make_scene(frames.height, frames.width, **given)
    backgrounds = find_backgrounds(frames, scene, silent)
    scene = with_level(frames, scene, backgrounds)
    described = describe_frames(frames, scene, backgrounds, silent)
    rate = len(frames) / (time.perf_counter() - started)
    if scene.person is None:
        heights = learn_heights(described.seen, len(scene.roi))
        scene = replace(scene, person=np.tile(heights[:, None], scene.roi.shape[1]))
    return Camera(name, real, scene, described, counts, rate)
