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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from activehuber._typing import Mask, Matrix, Vector
from activehuber.crowd.frames import Frame, Frames, Image, load_opencv
from activehuber.data.rows import cores
from activehuber.runtime.messages import TableError

Floats: TypeAlias = NDArray[np.float32]
Report: TypeAlias = Callable[[int, int], Any]

# Pixels of a frame that is worked on; larger ones are made smaller first.
WORKING_PIXELS = 320 * 240
# Sides shorter than this are made longer: optical flow and box counting need some pixels.
LEAST_SIDE = 16
# Cells of the grid in a frame of that size, and of the coarse one that patterns are counted in.
CELL_PIXELS, COARSE_PIXELS = 20, 80
# Frames of a stretch, frames of it behind its median, and stretches before and after that have
# a say in its background.
STRETCH_FRAMES, MEDIAN_FRAMES, NEAR_STRETCHES = 400, 61, 5
# Frames of all these stretches together whose median is the usual look of the scene.
POOLED_FRAMES = 100
# The empty scene has fewer edges than one with someone in it: by this factor, within so many
# pixels of a frame of 240 rows, where at least this share of pixels differs. It must have been
# seen in this share of the stretches.
EMPTIER, EMPTY_PIXELS, EMPTY_SHARE, SEEN_SHARE = 0.8, 6.0, 0.2, 0.3
# A pixel is foreground if it differs by so many times the noise, and by so many levels; and
# surely so at the second level.
NOISE_FACTOR, LEAST_LEVELS, SURELY = 4.0, 20.0, 1.5
# Levels at which a difference counts in full.
FULL_DIFFERENCE = 80.0
# Gradients (by Sobel's filter, whose weights sum to 4 a side) of the difference that make an
# edge, over the level of the foreground.
EDGE_LEVELS = (2.0, 4.0, 6.5)
CANNY = (60, 140)
# Largest over smallest height of a person in one scene.
MOST_PERSPECTIVE = 1e3
GREY_LEVELS = 16
# Blobs below this share of a person's squared height are specks.
BLOB_SHARE = 0.02
# Optical flow below this many pixels a frame is no motion.
FLOW_PIXELS = 0.5

VIEWS = ("size", "edges", "texture")
MOTION = "motion"


# --- the scene --------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """What stays the same about a camera.

    Attributes
    ----------
    height, width : int
        Of the frames as they come.
    roi : ndarray of shape (h, w), bool
        Where people are counted; h and w are those of the working size.
    person : ndarray of shape (h, w)
        Height of a person there, over its median in the region of interest.
    level : float
        Difference from which on a pixel is foreground.
    motion : bool
        Whether the view of motion is wanted.
    """

    height: int
    width: int
    roi: Mask
    person: Matrix
    level: float = LEAST_LEVELS
    motion: bool = False

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views, in the order of their columns."""
        return (*VIEWS, MOTION) if self.motion else VIEWS


def make_scene(
    height: int,
    width: int,
    *,
    roi: Mask | None = None,
    perspective: Matrix | None = None,
    motion: bool = False,
) -> Scene:
    """Check what is known of a camera and bring it to the working size.

    Parameters
    ----------
    height, width : int
        Of the frames.
    roi : ndarray of shape (height, width), bool, or None
        None: the whole frame.
    perspective : ndarray of shape (height, width) or None
        Height of a person in pixels, or anything proportional to it. None: the same
        everywhere.
    motion : bool
        Whether to tell left from right.

    Returns
    -------
    Scene
    """
    cv2 = load_opencv()
    shape = working_shape(height, width)
    inside = np.ones(shape, dtype=bool)
    if roi is not None:
        _check_shape("the region of interest", roi, height, width)
        inside = (
            cv2.resize(roi.astype(np.uint8), shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
        )
        if not inside.any():
            raise TableError("the region of interest is empty; non-zero pixels are inside it")
    person = np.ones(shape)
    if perspective is not None:
        _check_shape("the perspective map", perspective, height, width)
        if not np.all(np.isfinite(perspective) & (np.asarray(perspective) > 0.0)):
            raise TableError(
                "the perspective map must hold the height of a person in pixels at every "
                "place, all above 0"
            )
        if np.max(perspective) > MOST_PERSPECTIVE * np.min(perspective):
            raise TableError(
                f"heights of a person that differ {MOST_PERSPECTIVE:g} times and more are no "
                "perspective; give heights in pixels"
            )
        person = cv2.resize(
            np.asarray(perspective, dtype=float), shape[::-1], interpolation=cv2.INTER_AREA
        )
        person /= np.median(person[inside])
    return Scene(height, width, inside, person, motion=motion)


def perspective_line(height: int, width: int, top: float, bottom: float) -> Matrix:
    """A map of shape (height, width) of a person's height, linear from top to bottom row."""
    if not (0.0 < top < np.inf and 0.0 < bottom < np.inf):
        raise TableError(
            f"--perspective-line {top:g} {bottom:g}: give the height of a person in pixels at "
            "the top and at the bottom row, both above 0"
        )
    return np.repeat(np.linspace(top, bottom, height)[:, None], width, axis=1)


def working_shape(height: int, width: int) -> tuple[int, int]:
    """Height and width of a frame that is worked on."""
    shrink = min(1.0, float(np.sqrt(WORKING_PIXELS / (height * width))))
    return max(round(shrink * height), LEAST_SIDE), max(round(shrink * width), LEAST_SIDE)


def grid_of(shape: tuple[int, ...], pixels: int) -> tuple[int, int]:
    """Rows and columns of a grid of cells of about so many pixels a side."""
    return max(1, round(shape[0] / pixels)), max(1, round(shape[1] / pixels))


def _check_shape(what: str, values: np.ndarray, height: int, width: int) -> None:
    # Shapes count as the same if they differ by what rounding the sides of the map can do.
    slack = 0.5 * (height + width)
    if (
        values.ndim != 2
        or values.size == 0
        or abs(values.shape[0] * width - values.shape[1] * height) > slack
    ):
        size = " × ".join(str(side) for side in values.shape[::-1])
        raise TableError(
            f"{what} is {size}, but the frames are {width} × {height}; make it the same size, "
            "or at least the same shape"
        )


def shrink(image: Image, scene: Scene) -> Image:
    """A frame at the working size."""
    if image.shape[:2] == scene.roi.shape:
        return image
    cv2 = load_opencv()
    return cv2.resize(image, scene.roi.shape[::-1], interpolation=cv2.INTER_AREA)


# --- the background ---------------------------------------------------------------------


@dataclass(frozen=True)
class Backgrounds:
    """The empty scene around each stretch of time.

    Attributes
    ----------
    numbers : ndarray of shape (k,)
        The frame in the middle of each stretch.
    images : list of ndarray of shape (h, w, 3), uint8
    """

    numbers: Vector
    images: list[Image]

    def near(self, number: int) -> Image:
        """The background of a frame."""
        return self.images[int(np.argmin(np.abs(self.numbers - number)))]


def find_backgrounds(
    frames: Frames, scene: Scene, report: Report, known: Image | None = None
) -> Backgrounds:
    """The scene without people.

    The median over a stretch of time has no one in it but who stayed for half of it, that over
    several stretches who stayed for half of them. Someone may sit for longer, so they are put
    together by `emptiest`. Slow changes of light are followed from stretch to stretch, quick
    ones of the exposure are taken out of every frame (`difference`).

    Mean errors of counts on five folds and two halves of the training frames of Mall were 2.02
    and 2.34 with the background of OpenCV's MOG2 (history 500), 2.73 and 3.02 with the median
    of each stretch alone, and 2.04 and 2.23 with `emptiest` of these medians. The median of
    frames of all stretches as the usual look counts parts of the training frames better that
    lie apart from counted ones: MAE 4.03, 3.84, 3.26, 2.99, 2.81 with 25, 50, 100, 200, 500 of
    these, 4.21, 4.00, 3.26, 3.12, 2.99 without.

    Parameters
    ----------
    frames : Frames
    scene : Scene
    report : callable
        Gets stretches done and stretches in all.
    known : ndarray of shape (h, w, 3), uint8, or None
        The empty scene of an earlier time, if there is one.

    Returns
    -------
    Backgrounds
    """
    count = max(1, len(frames) // STRETCH_FRAMES)
    stretches = np.array_split(np.array(frames.numbers), count)
    earlier = [] if known is None else [known]
    # Neighbouring stretches at any time: a median each, and some of the frames behind it.
    near: deque[tuple[Image, list[Image]]] = deque(maxlen=2 * NEAR_STRETCHES)
    each = POOLED_FRAMES // min(count, 2 * NEAR_STRETCHES)
    middles, made = [], []
    for done, images in enumerate(_samples(frames, scene, stretches)):
        if images:
            middles.append(float(np.mean(stretches[done])))
            some = np.linspace(0, len(images) - 1, min(each, len(images))).astype(int)
            near.append((median_image(images), [images[place] for place in some]))
            if len(near) == near.maxlen:
                made.append(empty_scene(near, earlier))
        report(done + 1, count)
    if not middles:
        raise TableError(f"{frames.path}: no frame can be read")
    if not made:
        made.append(empty_scene(near, earlier))
    # Stretches near either end of the sequence share their neighbours, and the result.
    starts = [min(max(0, k - NEAR_STRETCHES), len(made) - 1) for k in range(len(middles))]
    return Backgrounds(np.array(middles), [made[start] for start in starts])


def empty_scene(
    stretches: Sequence[tuple[Image, list[Image]]], earlier: Sequence[Image]
) -> Image:
    """The empty scene from stretches of time: a median and some frames of each.

    `earlier` are empty scenes of earlier times.
    """
    medians = [middle for middle, _ in stretches]
    if len(medians) == 1:
        return emptiest([*medians, *earlier])
    # At one exposure: of images that grow brighter the median where someone was would be one
    # of another time than beside it.
    middle = median_image(medians)
    pool = []
    for own, images in stretches:
        gain = _gain(own, middle)
        pool += [_brightened(image, gain) for image in images]
    return emptiest([*medians, *earlier], median_image(pool))


def _samples(
    frames: Frames, scene: Scene, stretches: Sequence[np.ndarray]
) -> Iterator[list[Image]]:
    """Some frames of each stretch, in one pass: a video can only be read from its start."""
    some = [s[np.linspace(0, len(s) - 1, MEDIAN_FRAMES).astype(int)] for s in stretches]
    reader = _shrunk(frames, scene, np.unique(np.concatenate(some)))
    following = next(reader, None)
    for stretch in stretches:
        held = []
        while following is not None and following[0] <= stretch[-1]:
            held.append(following[1])
            following = next(reader, None)
        yield held


def _shrunk(
    frames: Frames, scene: Scene, numbers: Sequence[int] | np.ndarray
) -> Iterator[tuple[int, Image]]:
    """Readable frames at working size."""
    for frame in frames.each([int(number) for number in numbers]):
        if frame.image is not None:
            yield frame.number, shrink(frame.image, scene)


def median_image(images: Sequence[Image]) -> Image:
    """The median of every pixel and colour, shape (h, w, 3)."""
    # Pixels first: the median is then taken along memory.
    stack = np.ascontiguousarray(np.stack(images, axis=-1))
    middle = stack.shape[-1] // 2
    return np.partition(stack, middle, axis=-1)[..., middle]


def emptiest(images: Sequence[Image], usual: Image | None = None) -> Image:
    """Of several images of a scene, at each place the one that looks empty there.

    That is one like a good part of the others, with clearly fewer edges than usual; where there
    is none, the usual look: their median, unless it is given. Edges alone would take a man in a
    dark coat for an empty shelf, the median alone someone who sat there most of the time for
    the bench.
    """
    if len(images) == 1:
        return images[0]
    cv2 = load_opencv()
    # At one exposure first, as in `empty_scene`.
    middle = median_image(images) if usual is None else usual
    evened = [_brightened(image, _gain(image, middle)) for image in images]
    usual = median_image(evened) if usual is None else usual
    reach = EMPTY_PIXELS * len(usual) / 240.0
    out, least = usual.copy(), EMPTIER * _edges_around(usual, reach)
    for image in evened:
        like = np.mean([_apart(image, other) <= LEAST_LEVELS for other in evened], axis=0)
        apart = (_apart(image, usual) > LEAST_LEVELS).astype(np.float64)
        around = cv2.GaussianBlur(apart, (0, 0), reach)
        differs = around > EMPTY_SHARE
        # Where it differs, that is: all around someone the images are alike.
        seen = cv2.GaussianBlur(apart * like, (0, 0), reach) >= SEEN_SHARE * around
        edges = _edges_around(image, reach)
        better = seen & differs & (edges < least)
        out[better] = image[better]
        least = np.where(better, edges, least)
    return out


def _apart(image: Image, other: Image) -> NDArray[np.uint8]:
    """Largest difference among the colours, shape (h, w)."""
    return load_opencv().absdiff(image, other).max(axis=2)


def _edges_around(image: Image, reach: float) -> Floats:
    """Mean gradient around every pixel, shape (h, w)."""
    cv2 = load_opencv()
    size = np.minimum(cv2.magnitude(*strongest_gradients(image.astype(np.float32))), 300.0)
    return cv2.GaussianBlur(size, (0, 0), reach)


def _gain(image: Image, other: Image) -> Vector:
    """By how much the colours of another image are brighter, shape (3,)."""
    return np.median((other + 5.0) / (image + 5.0), axis=(0, 1))


def _brightened(image: Image, gain: Vector) -> Image:
    return np.clip(np.rint(gain * image), 0, 255).astype(np.uint8)


def noise_level(frames: Frames, scene: Scene, backgrounds: Backgrounds) -> float:
    """The difference from which on a pixel is foreground, by the noise of some frames."""
    some = np.array(frames.numbers)[:: max(1, len(frames) // 20)]
    typical = [
        np.median(difference(image, backgrounds.near(number), scene.roi)[1][scene.roi])
        for number, image in _shrunk(frames, scene, some)
    ]
    if not typical:
        # Others can be read, but none of these: the least level is a fair guess.
        return LEAST_LEVELS
    return max(LEAST_LEVELS, NOISE_FACTOR * float(np.median(typical)))


def difference(image: Image, background: Image, roi: Mask) -> tuple[Floats, Floats]:
    """The frame at the background's exposure (h, w, 3), and how far it is from it (h, w)."""
    cv2 = load_opencv()
    # Every third pixel each way will do, unless the region is too thin for that.
    step = 3 if roi[::3, ::3].any() else 1
    some, empty = roi[::step, ::step], background.astype(np.float32)
    near = image[::step, ::step][some].astype(np.float32) + 5.0
    gain = np.median(near / (empty[::step, ::step][some] + 5.0), axis=0)
    evened = np.minimum(image.astype(np.float32) / gain.clip(0.2, 5.0).astype(np.float32), 255)
    # White may have been brighter than white can be: it is then no darker than the background.
    evened = np.where(image == 255, np.maximum(evened, empty), evened)
    apart = cv2.absdiff(evened, empty).max(axis=2)
    return evened, cv2.GaussianBlur(apart, (0, 0), 0.8)


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
    cv2 = load_opencv()
    evened, apart = difference(image, background, scene.roi)
    grey = cv2.cvtColor(evened, cv2.COLOR_BGR2GRAY).astype(np.uint8)
    across, down = strongest_gradients(evened - background)
    masks = []
    for level in (scene.level, SURELY * scene.level):
        mask = ((apart > level) & scene.roi).astype(np.uint8)
        masks.append(_without_specks(mask))
    return FrameDescription(grey, across, down, apart, masks[0], masks[1])


def _without_specks(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What of a mask squares of 2 × 2 cover; OpenCV's own opening would move it by a pixel."""
    cv2, square = load_opencv(), np.ones((2, 2), np.uint8)
    return cv2.dilate(cv2.erode(mask, square, anchor=(1, 1)), square, anchor=(0, 0))


def strongest_gradients(colours: Floats) -> tuple[Floats, Floats]:
    """Sobel gradients across and down, of the colour where they are largest, (h, w) both."""
    cv2 = load_opencv()
    across, down = cv2.Sobel(colours, cv2.CV_32F, 1, 0), cv2.Sobel(colours, cv2.CV_32F, 0, 1)
    best_across, best_down = across[..., 0], down[..., 0]
    best = best_across**2 + best_down**2
    for colour in (1, 2):
        size = across[..., colour] ** 2 + down[..., colour] ** 2
        larger = size > best
        best = np.where(larger, size, best)
        best_across = np.where(larger, across[..., colour], best_across)
        best_down = np.where(larger, down[..., colour], best_down)
    return best_across, best_down


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
    cv2, grid = load_opencv(), grid_of(values.shape, pixels)
    share = values.size / (grid[0] * grid[1])
    means = cv2.resize(values.astype(np.float32), grid[::-1], interpolation=cv2.INTER_AREA)
    return share * means.ravel().astype(float)


def describe_size(look: FrameDescription, scene: Scene) -> list[Vector]:
    """Areas in cells; area, perimeter, its directions, their ratio and blobs in the whole."""
    cv2 = load_opencv()
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
    cv2 = load_opencv()
    count, _, stats, centres = cv2.connectedComponentsWithStats(look.foreground)
    if count < 2:
        return 0.0
    places = np.round(centres[1:]).astype(int)
    person = scene.person[places[:, 1], places[:, 0]] * len(look.grey) / 6.0
    return float(np.sum(stats[1:, cv2.CC_STAT_AREA] > BLOB_SHARE * person**2))


def describe_edges(look: FrameDescription, scene: Scene) -> list[Vector]:
    """Edges at three levels and Canny's in cells; directions in coarse cells; dimension."""
    cv2 = load_opencv()
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
    cv2 = load_opencv()
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
    cv2 = load_opencv()
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
    rows: list[Vector | None] = []
    problems: list[str] = []
    first: dict[str, list[Vector]] | None = None

    def work(pair: tuple[Frame, Frame | None]) -> dict[str, list[Vector]] | None:
        return _features_of(pair, scene, backgrounds)

    for frame, found in _in_order(work, _pairs(frames, scene.motion)):
        if found is None:
            problems.append(frame.problem)
            rows.append(None)
        else:
            first = first or found
            rows.append(np.concatenate([block for view in found.values() for block in view]))
        report(len(rows), len(frames))
    if first is None:
        raise TableError(f"{frames.path}: no frame can be read; {problems[0]}")
    columns, blocks = _layout(first)
    values = np.stack([np.full(len(blocks), np.nan) if row is None else row for row in rows])
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
    pair: tuple[Frame, Frame | None], scene: Scene, backgrounds: Backgrounds
) -> dict[str, list[Vector]] | None:
    frame, before = pair
    if frame.image is None:
        return None
    image = shrink(frame.image, scene)
    look = look_at(image, backgrounds.near(frame.number), scene)
    flow = None
    if scene.motion:
        cv2 = load_opencv()
        past = image if before is None or before.image is None else shrink(before.image, scene)
        flow = rightward_flow(*(cv2.cvtColor(p, cv2.COLOR_BGR2GRAY) for p in (past, image)))
    return describe(look, scene, flow)


def _in_order(
    work: Callable[[tuple[Frame, Frame | None]], Any],
    pairs: Iterator[tuple[Frame, Frame | None]],
) -> Iterator[tuple[Frame, Any]]:
    """(frame, result) in order; a few frames at a time in threads, where OpenCV runs freely."""
    cv2 = load_opencv()
    ahead = 4 * cores()
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with ThreadPoolExecutor(cores()) as pool:
            waiting: deque[tuple[Frame, Any]] = deque()
            for pair in pairs:
                waiting.append((pair[0], pool.submit(work, pair)))
                if len(waiting) > ahead:
                    frame, result = waiting.popleft()
                    yield frame, result.result()
            for frame, result in waiting:
                yield frame, result.result()
    finally:
        cv2.setNumThreads(threads)


def overlay(image: Image, look: FrameDescription) -> Image:
    """The frame with its foreground tinted and outlined, to check by eye."""
    cv2 = load_opencv()
    out = image.copy()
    inside = look.foreground > 0
    out[inside] = (0.5 * out[inside] + 0.5 * np.array([60, 160, 255])).astype(np.uint8)
    outlines, _ = cv2.findContours(look.foreground, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(out, outlines, -1, (0, 60, 200), 1)


def with_level(frames: Frames, scene: Scene, backgrounds: Backgrounds) -> Scene:
    """The scene with its foreground level set by the noise of some frames."""
    return replace(scene, level=noise_level(frames, scene, backgrounds))
