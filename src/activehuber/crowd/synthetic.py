"""A camera that never was: a plaza with people walking, and how many there are at any time.

scene (floor, objects, perspective) -> walks (who is where in each frame) -> drawn frames
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from activehuber._typing import Mask, Matrix, Vector
from activehuber.crowd.frames import Image, cv2

End: TypeAlias = tuple[float, float, float]

# Shares of the height of the picture: where the floor begins, and a person at its front.
FLOOR_TOP, NEAR_PERSON = 0.26, 0.27
# Corners of the region of interest as shares of width and height, clockwise.
REGION = ((0.15, 0.17), (0.85, 0.17), (0.97, 0.9), (0.03, 0.9))
# Heights of people, over the usual one.
SHORTEST, TALLEST = 0.82, 1.15
# Walking people cover this many of their own heights in a second, and take this many steps.
SPEEDS, STEPS = (0.5, 1.0), 2.0
# Seconds for which a person who stops stands still.
PAUSES = (8.0, 40.0)
# Of those still wanted, the share that comes in within a second; the share that comes in twos.
ARRIVALS, PAIRS = 0.8, 0.35
# Share of clothes that hardly differ from the floor.
CAMOUFLAGED = 0.25
# Where shadows fall, in heights of the person: to the right, and up.
SHADOW = (0.32, 0.05)
# Bits of fraction with which OpenCV takes coordinates.
SHIFT = 4

# One person at one time. Lengths in pixels, times in seconds, heading -1 (left) or 1.
NUMBERS = "x y heading speed drift phase tall until_pause pause"
WALKER = np.dtype([("who", np.int64), *((name, np.float64) for name in NUMBERS.split())])
Walkers: TypeAlias = np.ndarray


@dataclass(frozen=True, eq=False)
class SyntheticScene:
    """What does not move.

    Attributes
    ----------
    background : ndarray of shape (height, width, 3), uint8
        The empty plaza.
    heights : ndarray of shape (height,)
        Height in pixels of a person whose feet are in that row.
    roi : ndarray of shape (height, width), bool
    objects : tuple of (row, mask)
        Things that hide people behind them: the row they stand on and their pixels.
    """

    background: Image
    heights: Vector
    roi: Mask
    objects: tuple[tuple[float, NDArray[np.uint8]], ...]


@dataclass(frozen=True, eq=False)
class Figure:
    """What stands in a picture; lengths are shares of its height, from its feet on."""

    canvas: np.ndarray
    x: float
    feet: float
    tall: float

    def limb(self, start: End, end: End, colour: ArrayLike) -> None:
        """A trapezium from one end to the other; an end is right, up and half its width."""
        (right, up, half), (to_right, to_up, to_half) = start, end
        across = np.array([right - half, right + half, to_right + to_half, to_right - to_half])
        rows = self.feet - np.array([up, up, to_up, to_up]) * self.tall
        corners = np.column_stack([self.x + across * self.tall, rows]) * (1 << SHIFT)
        filled = np.asarray(colour).tolist(), cv2.LINE_AA, SHIFT
        cv2.fillConvexPoly(self.canvas, corners.astype(np.int32), *filled)

    def oval(
        self,
        right: float,
        up: float,
        across: float,
        down: float,
        colour: ArrayLike,
        angle: float = 0.0,
    ) -> None:
        """An ellipse around a place, so far across and down from its middle."""
        centre = self.x + right * self.tall, self.feet - up * self.tall
        places = np.array([centre, (across * self.tall, down * self.tall)]) * (1 << SHIFT)
        filled = np.asarray(colour).tolist(), -1, cv2.LINE_AA, SHIFT
        cv2.ellipse(self.canvas, *places.astype(int).tolist(), angle, 0, 360, *filled)


@dataclass(frozen=True, eq=False)
class Clothes:
    """Clothes and build of one person; colours are BGR, of shape (3,)."""

    skin: Vector
    hair: Vector
    top: Vector
    trousers: Vector
    shoes: Vector
    coat: float
    bag: Vector | None


@dataclass(frozen=True, eq=False)
class Clip:
    """Frames of a synthetic camera, drawn when they are asked for.

    Attributes
    ----------
    counts, left, right : ndarray of shape (n_frames,)
        People in the region of interest, and those of them who head left and right.
    roi : ndarray of shape (height, width), bool
    perspective : ndarray of shape (height, width)
        Height in pixels of a person whose feet are there.
    background : ndarray of shape (height, width, 3), uint8
        The plaza without people, in medium light.
    fps : float
        Frames a second.

    Examples
    --------
    >>> from activehuber.crowd.synthetic import synthetic_camera
    >>> clip = synthetic_camera(5, people=(2, 4))
    >>> len(clip), clip.counts.shape, clip.roi.shape
    (5, (5,), (240, 320))
    >>> bool((clip.left + clip.right == clip.counts).all())
    True
    """

    counts: Vector
    left: Vector
    right: Vector
    roi: Mask
    perspective: Matrix
    background: Image
    fps: float
    scene: SyntheticScene
    walks: tuple[Walkers, ...]
    clothes: tuple[Clothes, ...]
    gains: Vector
    grain: NDArray[np.int16]
    shadows: bool
    random_state: int

    def __len__(self) -> int:
        return len(self.counts)

    def image(self, position: int) -> Image:
        """A frame of shape (height, width, 3), BGR; the first has position 0.

        Examples
        --------
        >>> from activehuber.crowd.synthetic import synthetic_camera
        >>> synthetic_camera(3, people=(1, 2)).image(0).dtype
        dtype('uint8')
        """
        if not 0 <= position < len(self):
            raise IndexError(
                f"there are {len(self)} frames, from 0; {position} is none of them"
            )
        drawn = _draw(self.scene, self.walks[position], self.clothes, shadows=self.shadows)
        return _expose(drawn, self.gains[position], self.grain, (self.random_state, position))

    def images(self) -> Iterator[Image]:
        """All frames, one after the other.

        Returns
        -------
        iterator of ndarray of shape (height, width, 3), uint8

        Examples
        --------
        >>> from activehuber.crowd.synthetic import synthetic_camera
        >>> sum(1 for _ in synthetic_camera(3, people=(1, 2)).images())
        3
        """
        return (self.image(position) for position in range(len(self)))


def synthetic_camera(
    n_frames: int = 400,
    *,
    height: int = 240,
    width: int = 320,
    people: tuple[int, int] = (2, 30),
    fps: float = 5.0,
    perspective: float = 0.4,
    shadows: bool = True,
    light_drift: float = 0.15,
    standing: float = 0.1,
    noise: float = 3.0,
    random_state: int = 0,
) -> Clip:
    """A camera over a plaza whose counts are known.

    People walk in from both sides, alone or in twos, some stop for a while; nearer ones hide
    those behind them. A person counts while the middle between head and feet is in the region
    of interest.

    Parameters
    ----------
    n_frames : int
    height, width : int
        Of the frames, in pixels; at least 48.
    people : tuple of int
        The number in the region stays between these two, and wanders slowly from one to the
        other.
    fps : float
        Frames a second.
    perspective : float
        Height of a person at the back over that of one at the front, above 0 and up to 1.
    shadows : bool
    light_drift : float
        The light changes slowly by up to this share, both ways; below 1.
    standing : float
        Share of the people who stop for a while.
    noise : float
        Standard deviation of the sensor's noise, in grey levels.
    random_state : int
        The same number gives the same frames.

    Returns
    -------
    Clip

    Examples
    --------
    >>> from activehuber.crowd.synthetic import synthetic_camera
    >>> clip = synthetic_camera(20, people=(3, 6))
    >>> clip.image(7).shape
    (240, 320, 3)
    >>> bool(clip.counts.min() >= 3 and clip.counts.max() <= 6)
    True
    """
    rules = (
        (n_frames >= 1, "n_frames must be at least 1"),
        (min(height, width) >= 48, "height and width must be at least 48"),
        (0 <= people[0] <= people[1], "people must be two numbers, the smaller first"),
        (fps > 0, "fps must be positive"),
        (0 < perspective <= 1, "perspective must be above 0 and at most 1"),
        (0 <= light_drift < 1, "light_drift must be at least 0 and below 1"),
        (0 <= standing <= 1, "standing must be a share from 0 to 1"),
        (noise >= 0, "noise must not be negative"),
    )
    for holds, words in rules:
        if not holds:
            raise ValueError(words)
    rng = np.random.default_rng(random_state)
    scene = _build_scene(height, width, perspective, rng)
    walks = _walk(scene, n_frames, people, 1.0 / fps, standing, rng)
    everyone = 1 + max((int(w["who"].max()) for w in walks if len(w)), default=-1)
    floor = scene.background[int(0.6 * height) :].reshape(-1, 3).mean(axis=0)
    clothes = tuple(_dress(floor, rng) for _ in range(everyone))
    gains = 1.0 + light_drift * (2.0 * _slow_curve(n_frames, rng) - 1.0)
    gains *= 1.0 + 0.04 * light_drift * rng.standard_normal(n_frames)
    grain = np.rint(noise * rng.standard_normal((height + 61, width + 67, 3)))
    inside = [walkers[_is_inside(walkers, scene)]["heading"] for walkers in walks]
    left = np.array([np.sum(headings < 0) for headings in inside], dtype=np.float64)
    right = np.array([np.sum(headings > 0) for headings in inside], dtype=np.float64)
    return Clip(
        counts=left + right,
        left=left,
        right=right,
        roi=scene.roi,
        perspective=np.repeat(scene.heights[:, None], width, axis=1),
        background=_through_lens(scene.background),
        fps=fps,
        scene=scene,
        walks=walks,
        clothes=clothes,
        gains=gains,
        grain=grain.astype(np.int16),
        shadows=shadows,
        random_state=random_state,
    )


def _slow_curve(n: int, rng: np.random.Generator) -> Vector:
    """A smooth curve of shape (n,) from 0 to 1 whose beginning and end differ."""
    time = np.linspace(0.0, 1.0, n)
    first, second = rng.uniform(0.0, 1.0, 2)
    curve = np.sin(2 * np.pi * (1.1 * time + first))
    curve += 0.5 * np.sin(2 * np.pi * (2.7 * time + second))
    curve += rng.choice([-2.0, 2.0]) * (time - 0.5)
    span = np.ptp(curve)
    return (curve - curve.min()) / span if span > 0 else np.full(n, 0.5)


# --- the scene --------------------------------------------------------------------------


def _build_scene(
    height: int, width: int, perspective: float, rng: np.random.Generator
) -> SyntheticScene:
    rows = np.arange(height)
    top = FLOOR_TOP * height
    slope = (1.0 - perspective) * (rows - top) / (height - 1 - top)
    # Above the floor nobody stands; the line is carried on as far as it stays positive.
    heights = NEAR_PERSON * height * np.maximum(perspective + slope, 0.25 * perspective)
    canvas = _paint_floor(heights, width, rng)
    _paint_wall(canvas, int(top), rng)
    objects = []
    for row, place, paint in ((0.5, 0.2, _paint_plant), (0.72, 0.74, _paint_bench)):
        before = canvas.copy()
        feet = row * height
        paint(Figure(canvas, place * width, feet, heights[int(feet)]), rng)
        objects.append((feet, np.any(canvas != before, axis=2).astype(np.uint8)))
    # Paint is even, the world is not: patches of a few pixels and of many.
    uneven = np.zeros((height, width))
    for size, depth in ((2, 3), (23, 9)):
        coarse = rng.standard_normal((height // size + 2, width // size + 2))
        uneven += depth * cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    corners = np.hypot(*np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height)))
    shaded = (canvas + uneven[..., None]) * (1.06 - 0.14 * corners[..., None] ** 2)
    region = np.zeros((height, width), dtype=np.uint8)
    corners_of_region = np.array(REGION) * (width, height)
    cv2.fillConvexPoly(region, np.rint(corners_of_region).astype(np.int32), 1)
    background = np.clip(shaded, 0, 255).astype(np.uint8)
    return SyntheticScene(background, heights, region.astype(bool), tuple(objects))


def _paint_floor(heights: Vector, width: int, rng: np.random.Generator) -> Matrix:
    """Tiles in perspective, shape (height, width, 3); one colour for each tile."""
    # A row of pixels covers a depth that falls with the square of the scale.
    depth = np.cumsum(heights[-1] / heights[::-1] ** 2)[::-1]
    across = (np.arange(width) - 0.45 * width) / heights[:, None]
    size = rng.uniform(0.5, 0.7)
    tile_row = np.floor(1.7 * depth / size).astype(int)[:, None]
    tile_column = np.floor(across / size + 0.13 * (depth / size)[:, None]).astype(int)
    shades = rng.normal(0.0, 6.0, (97, 89))
    shade = shades[tile_row % 97, tile_column % 89]
    joints = (np.diff(tile_column, axis=1, prepend=tile_column[:, :1]) != 0) | (
        np.diff(tile_row, axis=0, prepend=tile_row[:1]) != 0
    )
    tone = np.array([148.0, 156.0, 162.0]) + rng.normal(0.0, 3.0, 3)
    return np.asarray(tone + shade[..., None] - 16.0 * joints[..., None])


def _paint_wall(canvas: Matrix, bottom: int, rng: np.random.Generator) -> None:
    """A house at the back with windows and a door."""
    width = canvas.shape[1]
    canvas[:bottom] = np.array([104.0, 118.0, 132.0]) + rng.normal(0.0, 4.0, 3)
    canvas[max(0, bottom - 3) : bottom] *= 0.6
    edges = np.linspace(0.03, 0.97, 8) * width
    for i, (start, end) in enumerate(pairwise(edges)):
        a, b = int(start + 0.12 * (end - start)), int(end - 0.12 * (end - start))
        lower = bottom - 3 if i == 4 else int(0.72 * bottom)
        glass = rng.uniform(50, 95) + np.array([14.0, 5.0, 0.0])
        canvas[int(0.15 * bottom) : lower, a:b] = glass
        canvas[int(0.15 * bottom) : lower, (a + b) // 2] += 40.0


def _paint_plant(plant: Figure, rng: np.random.Generator) -> None:
    """A pot with leaves, as high as a person."""
    plant.limb((0.0, 0.32, 0.2), (0.0, 0.0, 0.14), (70, 84, 120))
    for _ in range(46):
        angle, far = rng.uniform(0, 2 * np.pi), np.sqrt(rng.uniform())
        right, up = 0.24 * far * np.cos(angle), 0.62 - 0.34 * far * np.sin(angle)
        green = rng.uniform(0.6, 1.25) * np.array([48.0, 96.0, 62.0])
        plant.oval(right, up, 0.11, 0.045, green, rng.uniform(0, 180))


def _paint_bench(bench: Figure, rng: np.random.Generator) -> None:
    """A wooden bench seen from the front."""
    for leg in (-0.425, 0.425):
        bench.limb((leg, 0.3, 0.04), (leg, 0.0, 0.04), (52,) * 3)
    for up, thick in ((0.24, 0.06), (0.36, 0.05), (0.46, 0.05)):
        brown = rng.uniform(0.85, 1.15) * np.array([58.0, 92.0, 126.0])
        bench.limb((0.0, up + thick, 0.5), (0.0, up, 0.5), brown)


# --- walks ------------------------------------------------------------------------------


def _walk(
    scene: SyntheticScene,
    n_frames: int,
    people: tuple[int, int],
    seconds: float,
    standing: float,
    rng: np.random.Generator,
) -> tuple[Walkers, ...]:
    """Who is where, frame by frame."""
    fewest, most = people
    aims = fewest + (most - fewest) * _slow_curve(n_frames, rng)
    walkers = _newcomers(scene, round(aims[0]), 0, standing, rng, inside=True)
    known = len(walkers)
    out = [walkers]
    for aim in aims[1:]:
        walkers = _step(walkers, scene, seconds, people)
        expected = _expected(walkers, scene)
        births = rng.poisson(max(0.0, aim - expected) * min(1.0, ARRIVALS * seconds))
        births += rng.binomial(births, PAIRS)
        fresh = _newcomers(scene, min(births, most - expected), known, standing, rng)
        known += len(fresh)
        walkers = np.concatenate([walkers, fresh])
        out.append(walkers)
    return tuple(out)


def _newcomers(
    scene: SyntheticScene,
    count: int,
    first: int,
    standing: float,
    rng: np.random.Generator,
    *,
    inside: bool = False,
) -> Walkers:
    """People at the sides of the picture, or anywhere in the region; ids from `first` on."""
    new = np.zeros(max(0, count), dtype=WALKER)
    width = scene.roi.shape[1]
    for i, one in enumerate(new):
        if i and rng.uniform() < PAIRS and not inside:
            # Beside the one before, at the same pace: two who walk together.
            new[i] = new[i - 1]
            depth = one["y"] + rng.uniform(-0.1, 0.1) * _height_at(scene, one["y"])
            one["y"] = np.clip(depth, *_walkable(scene))
        else:
            one["heading"] = rng.choice([-1.0, 1.0])
            one["speed"] = rng.uniform(*SPEEDS)
            one["drift"] = rng.normal(0.0, 0.12)
            one["y"] = rng.uniform(*_walkable(scene))
        one["who"] = first + i
        one["tall"] = np.clip(rng.normal(1.0, 0.06), SHORTEST, TALLEST)
        one["phase"] = rng.uniform(0.0, 2 * np.pi)
        one["until_pause"] = rng.uniform(1.0, 8.0) if rng.uniform() < standing else np.inf
        one["pause"] = rng.uniform(*PAUSES)
        outside = rng.uniform(0.15, 0.6) * _height_at(scene, one["y"])
        one["x"] = -outside if one["heading"] > 0 else width - 1 + outside
        while inside and not _is_inside(new[i : i + 1], scene)[0]:
            one["x"] = rng.uniform(0.0, width)
    return new


def _step(
    walkers: Walkers, scene: SyntheticScene, seconds: float, people: tuple[int, int]
) -> Walkers:
    """Everyone a moment later; those far outside the picture are gone."""
    after = walkers.copy()
    walking = _is_walking(walkers)
    scale = _height_at(scene, walkers["y"]) * seconds * walking
    after["x"] += walkers["heading"] * walkers["speed"] * scale
    after["y"] += 0.5 * walkers["drift"] * scale
    after["phase"] += 2 * np.pi * STEPS / 2 * seconds * walking
    after["until_pause"] -= seconds
    after["pause"] -= seconds * ~walking
    low, high = _walkable(scene)
    turned = (after["y"] < low) | (after["y"] > high)
    after["drift"][turned] *= -1.0
    after["y"] = np.clip(after["y"], low, high)
    after = _keep_between(walkers, after, scene, people)
    margin = _height_at(scene, after["y"])
    gone = (after["x"] < -margin) | (after["x"] > scene.roi.shape[1] + margin)
    return after[~gone]


def _keep_between(
    before: Walkers, after: Walkers, scene: SyntheticScene, people: tuple[int, int]
) -> Walkers:
    """The step with too many who enter held back, and too many who leave turned round."""
    was, now = _is_inside(before, scene), _is_inside(after, scene)
    out = after.copy()
    leaving = np.flatnonzero(was & ~now)[: max(0, people[0] - int(now.sum()))]
    entering = np.flatnonzero(~was & now)[: max(0, int(now.sum()) - people[1])]
    for held in (leaving, entering):
        out["x"][held], out["y"][held] = before["x"][held], before["y"][held]
    out["heading"][leaving] *= -1.0
    return out


def _is_walking(walkers: Walkers) -> Mask:
    return (walkers["until_pause"] > 0) | (walkers["pause"] <= 0)


def _walkable(scene: SyntheticScene) -> tuple[float, float]:
    """First and last row for feet: the middle of the person is then in a row of the region."""
    rows = np.arange(len(scene.heights))
    lines = np.flatnonzero(scene.roi.any(axis=1))
    fits = rows - 0.5 * SHORTEST * scene.heights < lines[-1] - 1
    fits &= rows - 0.5 * TALLEST * scene.heights > lines[0] + 1
    fits &= rows > FLOOR_TOP * len(rows) + 2
    found = np.flatnonzero(fits)
    return float(found[0]), float(found[-1])


def _height_at(scene: SyntheticScene, y: Vector) -> Vector:
    return np.interp(y, np.arange(len(scene.heights)), scene.heights)


def _is_inside(walkers: Walkers, scene: SyntheticScene) -> Mask:
    """Whether the middle between head and feet is in the region of interest, shape (n,)."""
    height, width = scene.roi.shape
    middle = walkers["y"] - 0.5 * walkers["tall"] * _height_at(scene, walkers["y"])
    row, column = np.rint(middle).astype(int), np.rint(walkers["x"]).astype(int)
    seen = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return seen & scene.roi[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]


def _expected(walkers: Walkers, scene: SyntheticScene) -> int:
    """How many are in the region or on their way into it."""
    centre = 0.5 * scene.roi.shape[1]
    coming = walkers["heading"] * (centre - walkers["x"]) > 0
    return int(np.sum(_is_inside(walkers, scene) | coming))


# --- drawing ----------------------------------------------------------------------------


def _dress(floor: Vector, rng: np.random.Generator) -> Clothes:
    """Clothes for one person, some of them of nearly the colour of the floor."""

    def cloth(dark: float) -> Vector:
        if rng.uniform() < CAMOUFLAGED:
            return floor + rng.normal(0.0, 9.0) + rng.normal(0.0, 4.0, 3)
        return rng.uniform(25.0, 235.0) * dark + rng.normal(0.0, 20.0, 3)

    def dyed(mixed: Vector) -> Vector:
        return np.clip(mixed, 8, 247)

    skin = np.array([120.0, 150.0, 200.0]) * rng.uniform(0.4, 1.1)
    hair = np.array([40.0, 52.0, 66.0]) * rng.uniform(0.4, 2.2)
    return Clothes(
        skin=dyed(skin),
        hair=dyed(hair),
        top=dyed(cloth(1.0)),
        trousers=dyed(cloth(0.55)),
        shoes=dyed(np.full(3, rng.uniform(20, 90))),
        coat=float(rng.uniform(0.0, 0.2) * (rng.uniform() < 0.35)),
        bag=dyed(rng.uniform(20, 120, 3)) if rng.uniform() < 0.3 else None,
    )


def _draw(
    scene: SyntheticScene, walkers: Walkers, clothes: tuple[Clothes, ...], *, shadows: bool
) -> Image:
    """The plaza with people, from back to front, shape (height, width, 3)."""
    canvas = _cast_shadows(scene, walkers) if shadows else scene.background.copy()
    tall = walkers["tall"] * _height_at(scene, walkers["y"])
    walking = _is_walking(walkers)
    things = [(float(y), i) for i, y in enumerate(walkers["y"])]
    things += [(row, -1 - i) for i, (row, _) in enumerate(scene.objects)]
    for _, which in sorted(things):
        if which < 0:
            mask = scene.objects[-1 - which][1]
            cv2.copyTo(scene.background, mask, canvas)
        else:
            one = walkers[which]
            swing = float(np.sin(one["phase"])) if walking[which] else 0.0
            person = Figure(canvas, one["x"], one["y"], tall[which])
            _draw_person(person, one["heading"], swing, clothes[one["who"]])
    return canvas


def _cast_shadows(scene: SyntheticScene, walkers: Walkers) -> Image:
    """The floor darkened where people keep the light off."""
    height, width = scene.roi.shape
    # Soft things need no more than half the pixels.
    light = np.full((height // 2, width // 2), 255, dtype=np.uint8)
    for one, tall in zip(walkers, _height_at(scene, walkers["y"]), strict=True):
        person = Figure(light, one["x"] / 2, one["y"] / 2, tall / 2)
        person.oval(*SHADOW, 0.4, 0.09, (165,) * 3, -9.0)
        person.oval(0.0, 0.0, 0.14, 0.06, (140,) * 3)
    light = cv2.resize(cv2.GaussianBlur(light, (0, 0), 1.2), (width, height))
    return cv2.multiply(
        scene.background, cv2.cvtColor(light, cv2.COLOR_GRAY2BGR), scale=1 / 255
    )


def _draw_person(person: Figure, heading: float, swing: float, clothes: Clothes) -> None:
    """Legs, arms, body and head; `swing` from -1 to 1 is where in the step they are."""
    hem, hand = 0.45 - clothes.coat, 0.1 + 0.117 * swing
    for side, shade in ((-1.0, 0.75), (1.0, 1.0)):
        toe = side * (0.13 * swing + 0.03 * (1.0 - abs(swing)))
        lift = 0.03 * max(0.0, -side * swing * heading)
        hip, ankle = (0.02 * side, 0.5, 0.06), (toe, 0.03 + lift, 0.032)
        person.limb(hip, ankle, shade * clothes.trousers)
        person.oval(toe + 0.025 * heading, 0.02 + lift, 0.05, 0.022, clothes.shoes)
    person.limb((0.09, 0.79, 0.032), (hand, 0.46, 0.024), 0.72 * clothes.top)
    if clothes.bag is not None:
        person.oval(-0.13 * heading, 0.64, 0.07, 0.11, clothes.bag)
    person.limb((0.0, 0.83, 0.105), (0.0, hem, 0.1), clothes.top)
    person.limb((-0.05, 0.82, 0.045), (-0.05, hem, 0.04), 1.12 * clothes.top)
    person.limb((-0.1, 0.8, 0.033), (-hand, 0.46, 0.024), 0.88 * clothes.top)
    person.oval(-hand, 0.44, 0.025, 0.03, clothes.skin)
    person.oval(0.0, 0.92, 0.066, 0.08, clothes.hair)
    person.oval(0.022 * heading, 0.905, 0.046, 0.06, clothes.skin)


def _through_lens(image: Image) -> Image:
    """A little out of focus, as cheap lenses are."""
    return cv2.GaussianBlur(image, (3, 3), 0.7)


def _expose(
    image: Image, gain: float, grain: NDArray[np.int16], seed: tuple[int, int]
) -> Image:
    """The image as the sensor gives it: light of this strength, and noise."""
    height, width = image.shape[:2]
    # A fresh cut of one large sheet of noise: as good as new noise, and much faster.
    down, across = np.random.default_rng(seed).integers(0, (61, 67))
    cut = np.ascontiguousarray(grain[down : down + height, across : across + width])
    lit = cv2.convertScaleAbs(_through_lens(image), alpha=float(gain))
    return cv2.add(lit, cut, dtype=cv2.CV_8U)
