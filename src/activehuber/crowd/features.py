"""Frames -> numbers: how much of what is where, and where it stands.

A frame is compared with the empty scene. What differs is foreground, and maps of it are summed
twice: in the cells of a grid, and by the row where the upright run of foreground that a pixel
belongs to ends, which is where a person stands. The latter are what totals are made of: seen
from low down the head of a person is beside the feet of one far behind.

    areas      foreground at two levels, absolute difference
    lengths    outline of the foreground; edges of the difference at three levels; Canny's
    motion     area and edges of what moves left, and of what moves right, by optical flow

Heights of people come in when all frames are described (`Described.measures`): an area is
divided by their square, a length by the first power.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from activehuber._typing import Mask, Matrix, Vector
from activehuber.crowd.background import (
    Backgrounds,
    Floats,
    Report,
    difference,
    strongest_gradients,
)
from activehuber.crowd.frames import Frame, Frames, Image, cv2
from activehuber.crowd.perspective import sightings
from activehuber.crowd.scene import Scene, shrink
from activehuber.data.rows import cores
from activehuber.runtime.messages import TableError

# Cells of the grid in a frame of working size, and rows that are one band of feet.
CELL_PIXELS, BAND_PIXELS = 20, 4
# Cells across a place, and from one place to the next.
PLACE_CELLS = 2.5
# A pixel is surely foreground at this many times the level of the scene.
SURELY = 1.5
# Levels at which a difference counts in full.
FULL_DIFFERENCE = 80.0
# Gradients (by Sobel's filter, whose weights sum to 4 a side) of the difference that make an
# edge, over the level of the foreground.
EDGE_LEVELS = (2.0, 4.0, 6.5)
CANNY = (60, 140)
# Optical flow below this many pixels a frame is no motion.
FLOW_PIXELS = 0.5
# The power of a person's height that the sum of a map grows with: areas, then lengths; and of
# the maps of motion, left and right.
POWERS, MOTION_POWERS = (2, 2, 2, 1, 1, 1, 1, 1), (2, 1, 2, 1)


# --- one frame --------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameDescription:
    """A frame at working size, compared with its background.

    Attributes
    ----------
    grey : ndarray of shape (h, w), uint8
        At the background's exposure.
    strength : ndarray of shape (h, w), float32
        Gradient of the difference, of the colour where it is largest.
    apart : ndarray of shape (h, w), float32
        Largest absolute difference among the colours.
    foreground, surely : ndarray of shape (h, w), uint8
        0 or 1, in the region of interest.
    """

    grey: NDArray[np.uint8]
    strength: Floats
    apart: Floats
    foreground: NDArray[np.uint8]
    surely: NDArray[np.uint8]


def look_at(image: Image, background: Image, scene: Scene) -> FrameDescription:
    """Find what is not background in a frame of working size."""
    evened, apart = difference(image, background, scene.roi)
    grey = cv2.cvtColor(evened, cv2.COLOR_BGR2GRAY).astype(np.uint8)
    strength = cv2.magnitude(*strongest_gradients(evened - background))
    foreground, surely = (
        _without_specks(((apart > level) & scene.roi).astype(np.uint8))
        for level in (scene.level, SURELY * scene.level)
    )
    return FrameDescription(grey, strength, apart, foreground, surely)


def _without_specks(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What of a mask squares of 2 × 2 cover; OpenCV's own opening would move it by a pixel."""
    square = np.ones((2, 2), np.uint8)
    return cv2.dilate(cv2.erode(mask, square, anchor=(1, 1)), square, anchor=(0, 0))


def maps_of(look: FrameDescription, scene: Scene, flow: Floats | None = None) -> Floats:
    """All maps of a frame, shape (k, h, w).

    Parameters
    ----------
    look : FrameDescription
    scene : Scene
    flow : ndarray of shape (h, w) or None
        Pixels that things move to the right from the frame before; None without motion.
    """
    square = np.ones((3, 3), np.uint8)
    near = cv2.dilate(look.foreground, square) > 0
    edges = [look.strength > factor * scene.level for factor in EDGE_LEVELS]
    found = [
        look.foreground,
        look.surely,
        np.minimum(look.apart, FULL_DIFFERENCE) / FULL_DIFFERENCE,
        look.foreground - cv2.erode(look.foreground, square),
        *edges,
        (cv2.Canny(look.grey, *CANNY) > 0) & near,
    ]
    if flow is not None:
        for moving in (flow < -FLOW_PIXELS, flow > FLOW_PIXELS):
            found += [moving & (look.foreground > 0), moving & edges[0]]
    maps = np.stack(found).astype(np.float32) * scene.roi
    if scene.person is not None:
        # What differs from the rest of its row; heights by row come in later.
        beside = scene.heights[:, None] / scene.person
        maps *= np.stack([beside**power for power in _powers(len(maps))]).astype(np.float32)
    return maps


def _powers(n_maps: int) -> Vector:
    return np.array((POWERS + MOTION_POWERS)[:n_maps])


def grid_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the grid of cells."""
    return max(1, round(shape[0] / CELL_PIXELS)), max(1, round(shape[1] / CELL_PIXELS))


def places_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of the grid of places."""
    rows, columns = (max(1, round(cells / PLACE_CELLS)) for cells in grid_of(shape))
    return rows, columns


def in_cells(maps: Floats) -> Floats:
    """Sums in the cells of the grid, shape (k, rows, columns)."""
    grid = grid_of(maps.shape[1:])
    share = maps[0].size / (grid[0] * grid[1])
    size = {"dsize": grid[::-1], "interpolation": cv2.INTER_AREA}
    return np.stack([share * cv2.resize(layer, **size) for layer in maps])


def feet_of(foreground: NDArray[np.uint8]) -> np.ndarray:
    """The row where the upright run of foreground at each pixel ends; elsewhere its own."""
    rows = np.arange(len(foreground))[:, None]
    below = np.vstack([foreground[1:], np.zeros_like(foreground[:1])])
    ends = np.where((foreground > 0) & (below == 0), rows, len(foreground))
    return np.where(foreground > 0, np.minimum.accumulate(ends[::-1])[::-1], rows)


def by_feet(maps: Floats, foreground: NDArray[np.uint8]) -> Floats:
    """Sums by band of feet, shape (k, bands)."""
    band = (feet_of(foreground) // BAND_PIXELS).ravel()
    bands = -(-len(foreground) // BAND_PIXELS)
    sums = [np.bincount(band, layer.ravel(), minlength=bands) for layer in maps]
    return np.stack(sums).astype(np.float32)


def rightward_flow(before: NDArray[np.uint8], now: NDArray[np.uint8]) -> Floats:
    """Pixels that things in a grey frame have moved to the right, shape (h, w)."""
    finder = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    # Flow from now back to before, turned round: it then belongs to pixels of now.
    return -finder.calc(now, before, None)[..., 0]


# --- all frames -------------------------------------------------------------------------


@dataclass(frozen=True)
class Measures:
    """What a model sees of n frames, in units of people.

    Attributes
    ----------
    totals : ndarray of shape (n, k)
        Of every map, in the whole region of interest.
    places : ndarray of shape (n, k · places)
        Of every map around some places, each reaching into the next.
    cells : ndarray of shape (n, k · cells)
    """

    totals: Matrix
    places: Matrix
    cells: Matrix


@dataclass(frozen=True)
class Described:
    """Sums of the maps of n frames, k maps each.

    Attributes
    ----------
    numbers : ndarray of shape (n,), int
        Frame numbers.
    cells : ndarray of shape (n, k, rows, columns), float32
        NaN where a frame could not be read.
    feet : ndarray of shape (n, k, bands), float32
    seen : ndarray of shape (m, 3)
        Sightings of single people in all frames.
    problems : tuple of str
        One a frame that could not be read.
    """

    numbers: np.ndarray
    cells: Floats
    feet: Floats
    seen: Matrix
    problems: tuple[str, ...] = ()

    @property
    def readable(self) -> Mask:
        """Frames that have features, shape (n,)."""
        return np.isfinite(self.feet[:, 0, 0])

    @property
    def foreground(self) -> Matrix:
        """Foreground in cells, shape (n, cells)."""
        return self.cells[:, 0].reshape(len(self.cells), -1).astype(float)

    def some(self, part: Mask | np.ndarray) -> Described:
        """Some frames alone, by a mask or by their places in increasing order."""
        return replace(
            self, numbers=self.numbers[part], cells=self.cells[part], feet=self.feet[part]
        )

    def measures(self, scene: Scene) -> Measures:
        """The sums over what one person adds to them, by the heights of people."""
        heights, powers = scene.heights, _powers(self.feet.shape[1])
        n, _, rows, columns = self.cells.shape
        bands = np.minimum(BAND_PIXELS * (np.arange(self.feet.shape[2]) + 0.5), len(heights))
        tall = np.interp(bands, np.arange(len(heights)) + 0.5, heights)
        totals = np.einsum("nkb,kb->nk", self.feet, 1.0 / tall ** powers[:, None])
        middles = (np.arange(rows) + 0.5) * len(heights) / rows
        tall = np.interp(middles, np.arange(len(heights)) + 0.5, heights)
        cells = self.cells / (tall ** powers[:, None])[:, :, None]
        across, down = bumps(columns), bumps(rows)
        places = np.einsum("nkij,ai,bj->nkab", cells, down, across, optimize=True)
        return Measures(totals, places.reshape(n, -1), self.cells.reshape(n, -1).astype(float))


def bumps(cells: int) -> Matrix:
    """Weights of a row of cells in places along it, shape (places, cells)."""
    places = max(1, round(cells / PLACE_CELLS))
    middles = (np.arange(places) + 0.5) * cells / places - 0.5
    apart = (np.arange(cells) - middles[:, None]) / PLACE_CELLS
    return np.exp(-0.5 * apart**2)


def describe_frames(
    frames: Frames, scene: Scene, backgrounds: Backgrounds, report: Report
) -> Described:
    """Sums of the maps of all frames, on all cores.

    Parameters
    ----------
    frames : Frames
    scene : Scene
    backgrounds : Backgrounds
    report : callable
        Gets frames done and frames in all.

    Returns
    -------
    Described
    """
    problems, seen = [], [np.empty((0, 3))]
    cells: Floats | None = None
    work = partial(_describe, scene, backgrounds)
    for k, (problem, found) in enumerate(_in_order(work, _pairs(frames, scene.motion))):
        if problem:
            problems.append(problem)
        else:
            if cells is None:
                cells, feet = (
                    np.full((len(frames), *part.shape), np.nan, dtype=np.float32)
                    for part in found[:2]
                )
            cells[k], feet[k] = found[:2]
            seen.append(found[2])
        report(k + 1, len(frames))
    if cells is None:
        raise TableError(f"{frames.path}: no frame can be read; {problems[0]}")
    return Described(
        np.array(frames.numbers), cells, feet, np.concatenate(seen), tuple(problems)
    )


def _pairs(frames: Frames, motion: bool) -> Iterator[tuple[Frame, Frame | None]]:
    """Every frame, with the last readable one before it if motion is wanted."""
    before: Frame | None = None
    for frame in frames.each():
        yield frame, before
        if motion and frame.image is not None:
            before = frame


def _describe(
    scene: Scene, backgrounds: Backgrounds, pair: tuple[Frame, Frame | None]
) -> tuple[str, tuple[np.ndarray, ...]]:
    """What is wrong with a frame, or its sums in cells and by feet, and its sightings."""
    frame, before = pair
    if frame.image is None:
        return frame.problem, ()
    image = shrink(frame.image, scene)
    look = look_at(image, backgrounds.near(frame.number), scene)
    flow = None
    if scene.motion:
        past = image if before is None or before.image is None else shrink(before.image, scene)
        flow = rightward_flow(*(cv2.cvtColor(p, cv2.COLOR_BGR2GRAY) for p in (past, image)))
    maps = maps_of(look, scene, flow)
    return "", (in_cells(maps), by_feet(maps, look.foreground), sightings(look.foreground))


def _in_order(work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Results in order; a few items at a time in threads, where OpenCV runs freely."""
    ahead = 4 * cores()
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with ThreadPoolExecutor(cores()) as pool:
            waiting: deque[Future[Any]] = deque()
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            for future in waiting:
                yield future.result()
    finally:
        cv2.setNumThreads(threads)


def overlay(image: Image, look: FrameDescription) -> Image:
    """The frame with its foreground tinted and outlined, to check by eye."""
    out = image.copy()
    inside = look.foreground > 0
    out[inside] = (0.5 * out[inside] + 0.5 * np.array([60, 160, 255])).astype(np.uint8)
    outlines, _ = cv2.findContours(look.foreground, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(out, outlines, -1, (0, 60, 200), 1)
