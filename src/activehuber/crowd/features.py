"""Frames -> numbers, three views of every frame.

A frame is compared with the empty scene, put together from medians over stretches of time; one
gain a colour takes out the camera's exposure. What differs is foreground. Three views describe
it, in the whole region of interest and in the cells of a grid:

    size      foreground area at two levels, absolute difference; perimeter and its directions,
              perimeter to area, blobs
    edges     length of edges of the difference at three levels, Canny edges of the foreground;
              their directions in coarse cells, their fractal dimension
    texture   local binary patterns of the foreground; homogeneity, energy and entropy of
              grey-level co-occurrence in four directions

Areas are divided by the square, lengths by the first power of a person's height there. A fourth
view, motion, tells what moves left from what moves right by optical flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
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
from activehuber.crowd.scene import MOTION, Scene, shrink
from activehuber.data.rows import cores
from activehuber.runtime.messages import TableError

# Cells of the grid in a frame of working size, and of the coarse one that patterns are counted
# in.
CELL_PIXELS, COARSE_PIXELS = 20, 80
# A pixel is surely foreground at this many times the level of the scene.
SURELY = 1.5
# Levels at which a difference counts in full.
FULL_DIFFERENCE = 80.0
# Gradients (by Sobel's filter, whose weights sum to 4 a side) of the difference that make an
# edge, over the level of the foreground.
EDGE_LEVELS = (2.0, 4.0, 6.5)
CANNY = (60, 140)
GREY_LEVELS = 16
# Blobs below this share of a person's squared height are specks.
BLOB_SHARE = 0.02
# Optical flow below this many pixels a frame is no motion.
FLOW_PIXELS = 0.5


def grid_of(shape: tuple[int, ...], pixels: int) -> tuple[int, int]:
    """Rows and columns of a grid of cells of about so many pixels a side."""
    return max(1, round(shape[0] / pixels)), max(1, round(shape[1] / pixels))


# --- one frame --------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameDescription:
    """A frame at working size, compared with its background.

    Attributes
    ----------
    grey : ndarray of shape (h, w), uint8
        At the background's exposure.
    across, down : ndarray of shape (h, w), float32
        Gradients of the difference, of the colour where they are largest.
    apart : ndarray of shape (h, w), float32
        Largest absolute difference among the colours.
    foreground, surely : ndarray of shape (h, w), uint8
        0 or 1, in the region of interest.
    """

    grey: NDArray[np.uint8]
    across: Floats
    down: Floats
    apart: Floats
    foreground: NDArray[np.uint8]
    surely: NDArray[np.uint8]


def look_at(image: Image, background: Image, scene: Scene) -> FrameDescription:
    """Find what is not background in a frame of working size."""
    evened, apart = difference(image, background, scene.roi)
    grey = cv2.cvtColor(evened, cv2.COLOR_BGR2GRAY).astype(np.uint8)
    across, down = strongest_gradients(evened - background)
    foreground, surely = (
        _without_specks(((apart > level) & scene.roi).astype(np.uint8))
        for level in (scene.level, SURELY * scene.level)
    )
    return FrameDescription(grey, across, down, apart, foreground, surely)


def _without_specks(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What of a mask squares of 2 × 2 cover; OpenCV's own opening would move it by a pixel."""
    square = np.ones((2, 2), np.uint8)
    return cv2.dilate(cv2.erode(mask, square, anchor=(1, 1)), square, anchor=(0, 0))


def describe(
    look: FrameDescription, scene: Scene, flow: Floats | None = None
) -> dict[str, list[Vector]]:
    """The features of a frame, by view and in blocks.

    Parameters
    ----------
    look : FrameDescription
    scene : Scene
    flow : ndarray of shape (h, w) or None
        Pixels that things move to the right from the frame before; None without motion.

    Returns
    -------
    dict of str to list of ndarray
        A block holds one kind of number, as the cells of one map do, and gets one scale: a cell
        that hardly anyone crosses is then not blown up to the size of the others.
    """
    found = {
        "size": describe_size(look, scene),
        "edges": describe_edges(look, scene),
        "texture": describe_texture(look, scene),
    }
    if flow is not None:
        found[MOTION] = describe_motion(look, scene, flow)
    return found


def cells(values: np.ndarray, pixels: int = CELL_PIXELS) -> Vector:
    """Sums in the cells of a grid, shape (rows · columns,)."""
    grid = grid_of(values.shape, pixels)
    share = values.size / (grid[0] * grid[1])
    means = cv2.resize(values.astype(np.float32), grid[::-1], interpolation=cv2.INTER_AREA)
    return share * means.ravel().astype(float)


def describe_size(look: FrameDescription, scene: Scene) -> list[Vector]:
    """Areas in cells; area, perimeter, its directions, their ratio and blobs in the whole."""
    area = 1.0 / scene.person**2
    soft = np.minimum(look.apart, FULL_DIFFERENCE) / FULL_DIFFERENCE * scene.roi
    maps = [cells(area * layer) for layer in (look.foreground, look.surely, soft)]
    outline = look.foreground - cv2.erode(look.foreground, np.ones((3, 3), np.uint8))
    values = look.foreground.astype(np.float32)
    slopes = cv2.Sobel(values, cv2.CV_32F, 1, 0), cv2.Sobel(values, cv2.CV_32F, 0, 1)
    strengths = np.where(outline > 0, 1.0 / scene.person, 0.0)
    directions = np.array([np.sum(strengths[part]) for part in quadrants(*slopes)])
    total, perimeter = float(maps[0].sum()), float(np.sum(outline / scene.person))
    whole = [total, perimeter, perimeter / max(total, 1.0), _blobs(look, scene)]
    return [*maps, *np.array(whole)[:, None], directions]


def quadrants(across: Floats, down: Floats) -> list[Mask]:
    """Masks of gradients by direction, up to sign: 0–45, 45–90, 90–135, 135–180 degrees."""
    # Upright edges (down = 0) are common: both signs of them must go to one mask.
    same, steep = (across * down > 0) | (down == 0), np.abs(down) > np.abs(across)
    return [same & ~steep, same & steep, ~same & steep, ~same & ~steep]


def _blobs(look: FrameDescription, scene: Scene) -> float:
    """Connected pieces of foreground that are more than specks."""
    count, _, stats, centres = cv2.connectedComponentsWithStats(look.foreground)
    if count < 2:
        return 0.0
    places = np.round(centres[1:]).astype(int)
    person = scene.person[places[:, 1], places[:, 0]] * len(look.grey) / 6.0
    return float(np.sum(stats[1:, cv2.CC_STAT_AREA] > BLOB_SHARE * person**2))


def describe_edges(look: FrameDescription, scene: Scene) -> list[Vector]:
    """Edges at three levels and Canny's in cells; directions in coarse cells; dimension."""
    length = scene.roi / scene.person
    strength = cv2.magnitude(look.across, look.down)
    maps = [cells((strength > factor * scene.level) * length) for factor in EDGE_LEVELS]
    near = cv2.dilate(look.foreground, np.ones((3, 3), np.uint8)) > 0
    edges = (cv2.Canny(look.grey, *CANNY) > 0) & near & scene.roi
    clear = strength > EDGE_LEVELS[0] * scene.level
    parts = quadrants(look.across, look.down)
    directions = [cells((clear & part) * length, COARSE_PIXELS) for part in parts]
    return [*maps, cells(edges * length), *directions, np.array([_dimension(edges)])]


def _dimension(edges: Mask) -> float:
    """Fractal dimension of edges: the slope of log boxes met over log boxes a side."""
    boxes = []
    for size in (2, 4, 8, 16):
        # Boxes that stick out of the frame count too, or edges near its end would be lost.
        whole = np.pad(edges, [(0, -side % size) for side in edges.shape])
        rows, columns = whole.shape[0] // size, whole.shape[1] // size
        met = np.count_nonzero(whole.reshape(rows, size, columns, size).any(axis=(1, 3)))
        boxes.append(np.log(max(1.0, float(met))))
    return float(np.polyfit(-np.log([2, 4, 8, 16]), boxes, 1)[0])


def describe_texture(look: FrameDescription, scene: Scene) -> list[Vector]:
    """Binary patterns of the foreground in coarse cells; grey-level co-occurrence in all."""
    inside = look.foreground > 0
    codes = binary_patterns(look.grey)
    grid = grid_of(inside.shape, COARSE_PIXELS)
    rows = np.arange(inside.shape[0]) * grid[0] // inside.shape[0]
    columns = np.arange(inside.shape[1]) * grid[1] // inside.shape[1]
    place = rows[:, None] * grid[1] + columns
    weights = (1.0 / scene.person**2)[inside]
    kinds = 10 * grid[0] * grid[1]
    patterns = np.bincount(10 * place[inside] + codes[inside], weights, minlength=kinds)
    return [patterns, *co_occurrence(look.grey, inside).T]


def binary_patterns(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rotation-invariant uniform local binary patterns with 8 neighbours, 0 … 9.

    The number of neighbours at least as bright as the pixel if going round there are at most
    two changes between brighter and darker; 9 otherwise.
    """
    ring = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))
    padded = np.pad(grey, 1, mode="edge")
    h, w = grey.shape
    above = [padded[1 + i : 1 + i + h, 1 + j : 1 + j + w] >= grey for i, j in ring]
    count = np.zeros(grey.shape, dtype=np.uint8)
    changes = np.zeros(grey.shape, dtype=np.uint8)
    for k, bright in enumerate(above):
        count += bright
        changes += bright != above[k - 1]
    count[changes > 2] = 9
    return count


def co_occurrence(grey: NDArray[np.uint8], inside: Mask) -> Matrix:
    """Homogeneity, energy and entropy of neighbouring grey levels, four directions, (4, 3)."""
    levels = (grey // (256 // GREY_LEVELS)).astype(np.intp)
    steps = np.arange(GREY_LEVELS)
    near = 1.0 / (1.0 + (steps[:, None] - steps) ** 2).ravel()
    out = []
    for i, j in ((0, 1), (1, 1), (1, 0), (1, -1)):
        here = (slice(0, grey.shape[0] - i), slice(max(0, -j), grey.shape[1] - max(0, j)))
        there = (slice(i, None), slice(max(0, j), grey.shape[1] - max(0, -j)))
        both = inside[here] & inside[there]
        pairs = GREY_LEVELS * levels[here][both] + levels[there][both]
        share = np.bincount(pairs, minlength=GREY_LEVELS**2) / max(1, len(pairs))
        entropy = -float(np.sum(share[share > 0] * np.log(share[share > 0])))
        out.append([float(share @ near), float(np.sum(share**2)), entropy])
    return np.array(out)


def describe_motion(look: FrameDescription, scene: Scene, flow: Floats) -> list[Vector]:
    """Area and gradients of what moves left and of what moves right, in cells and in all."""
    area, length = 1.0 / scene.person**2, 1.0 / scene.person
    clear = cv2.magnitude(look.across, look.down) > EDGE_LEVELS[0] * scene.level
    parts = []
    for moving in (flow < -FLOW_PIXELS, flow > FLOW_PIXELS):
        inside = moving & (look.foreground > 0)
        maps = [cells(inside * area), cells((moving & clear & scene.roi) * length)]
        parts += [*maps, *np.array([maps[0].sum(), maps[1].sum()])[:, None]]
    return parts


def rightward_flow(before: NDArray[np.uint8], now: NDArray[np.uint8]) -> Floats:
    """Pixels that things in a grey frame have moved to the right, shape (h, w)."""
    finder = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    # Flow from now back to before, turned round: it then belongs to pixels of now.
    return -finder.calc(now, before, None)[..., 0]


# --- all frames -------------------------------------------------------------------------


@dataclass(frozen=True)
class Described:
    """Features of frames.

    Attributes
    ----------
    numbers : ndarray of shape (n,), int
        Frame numbers.
    values : ndarray of shape (n, d)
        NaN rows where a frame could not be read.
    columns : dict of str to slice
        Columns of each view.
    blocks : ndarray of shape (d,), int
        Which columns are of one kind.
    problems : tuple of str
        One a frame that could not be read.
    """

    numbers: np.ndarray
    values: Matrix
    columns: dict[str, slice]
    blocks: np.ndarray
    problems: tuple[str, ...]

    @property
    def readable(self) -> Mask:
        """Frames that have features, shape (n,)."""
        return np.isfinite(self.values[:, 0])

    def some(self, part: Mask | np.ndarray) -> Described:
        """Some frames alone, by a mask or by their places in increasing order."""
        return replace(self, numbers=self.numbers[part], values=self.values[part])


def describe_frames(
    frames: Frames, scene: Scene, backgrounds: Backgrounds, report: Report
) -> Described:
    """Features of all frames, on all cores.

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
    problems: list[str] = []
    values: Matrix | None = None
    work = partial(_features_of, scene, backgrounds)
    for k, (problem, found) in enumerate(_in_order(work, _pairs(frames, scene.motion))):
        if problem:
            problems.append(problem)
        else:
            if values is None:
                columns, blocks = _layout(found)
                values = np.full((len(frames), len(blocks)), np.nan)
            values[k] = np.concatenate([block for view in found.values() for block in view])
        report(k + 1, len(frames))
    if values is None:
        raise TableError(f"{frames.path}: no frame can be read; {problems[0]}")
    return Described(np.array(frames.numbers), values, columns, blocks, tuple(problems))


def _layout(found: dict[str, list[Vector]]) -> tuple[dict[str, slice], np.ndarray]:
    """Columns of every view, and the block of every column."""
    edges = np.cumsum([0, *(sum(map(len, view)) for view in found.values())]).tolist()
    columns = {name: slice(*pair) for name, pair in zip(found, pairwise(edges), strict=True)}
    sizes = [len(block) for view in found.values() for block in view]
    return columns, np.repeat(np.arange(len(sizes)), sizes)


def _pairs(frames: Frames, motion: bool) -> Iterator[tuple[Frame, Frame | None]]:
    """Every frame, with the last readable one before it if motion is wanted."""
    before: Frame | None = None
    for frame in frames.each():
        yield frame, before
        if motion and frame.image is not None:
            before = frame


def _features_of(
    scene: Scene, backgrounds: Backgrounds, pair: tuple[Frame, Frame | None]
) -> tuple[str, dict[str, list[Vector]]]:
    """What is wrong with a frame, or its features."""
    frame, before = pair
    if frame.image is None:
        return frame.problem, {}
    image = shrink(frame.image, scene)
    look = look_at(image, backgrounds.near(frame.number), scene)
    flow = None
    if scene.motion:
        past = image if before is None or before.image is None else shrink(before.image, scene)
        flow = rightward_flow(*(cv2.cvtColor(p, cv2.COLOR_BGR2GRAY) for p in (past, image)))
    return "", describe(look, scene, flow)


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
