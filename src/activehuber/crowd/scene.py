"""What stays the same about a camera: size, region of interest, perspective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from activehuber._typing import Mask, Matrix, Vector
from activehuber.crowd.frames import Image, cv2
from activehuber.runtime.messages import TableError

# Pixels of a frame that is worked on; larger ones are made smaller first.
WORKING_PIXELS = 320 * 240
# Sides shorter than this are made longer: optical flow and cells need some pixels.
LEAST_SIDE = 16
# A pixel that differs by fewer levels is background.
LEAST_LEVELS = 20.0
# Largest over smallest height of a person in one scene.
MOST_PERSPECTIVE = 1e3


@dataclass(frozen=True)
class Scene:
    """What stays the same about a camera.

    Attributes
    ----------
    height, width : int
        Of the frames as they come.
    roi : ndarray of shape (h, w), bool
        Where people are counted; h and w are those of the working size.
    person : ndarray of shape (h, w) or None
        Height in working pixels of a person who stands there, or anything proportional to it;
        None until it is learnt.
    level : float
        Difference from which on a pixel is foreground.
    motion : bool
        Whether to tell left from right.
    """

    height: int
    width: int
    roi: Mask
    person: Matrix | None = None
    level: float = LEAST_LEVELS
    motion: bool = False

    @property
    def heights(self) -> Vector:
        """Height of a person by row, shape (h,)."""
        if self.person is None:
            return np.ones(len(self.roi))
        return np.asarray(self.person.mean(axis=1))


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
        Height of a person in pixels, or anything proportional to it. None: it is to be learnt
        from the frames.
    motion : bool
        Whether to tell left from right.

    Returns
    -------
    Scene
    """
    shape = working_shape(height, width)
    inside = np.ones(shape, dtype=bool)
    if roi is not None:
        _check_shape("the region of interest", roi, height, width)
        pixels = roi.astype(np.uint8)
        inside = cv2.resize(pixels, shape[::-1], interpolation=cv2.INTER_NEAREST) > 0
        if not inside.any():
            raise TableError("the region of interest is empty; non-zero pixels are inside it")
    person = None
    if perspective is not None:
        _check_shape("the perspective map", perspective, height, width)
        if not np.all(np.isfinite(perspective) & (perspective > 0.0)):
            raise TableError(
                "the perspective map must hold the height of a person in pixels at every "
                "place, all above 0"
            )
        if np.max(perspective) > MOST_PERSPECTIVE * np.min(perspective):
            raise TableError(
                f"heights of a person that differ {MOST_PERSPECTIVE:g} times and more are no "
                "perspective; give heights in pixels"
            )
        heights = perspective.astype(float) * shape[0] / height
        person = cv2.resize(heights, shape[::-1], interpolation=cv2.INTER_AREA)
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


def _check_shape(what: str, values: np.ndarray, height: int, width: int) -> None:
    # Shapes count as the same if they differ by what rounding the sides of the map can do.
    slack, shape = 0.5 * (height + width), values.shape
    flat = len(shape) == 2 and 0 not in shape
    if not flat or abs(shape[0] * width - shape[1] * height) > slack:
        size = " × ".join(str(side) for side in shape[::-1])
        raise TableError(
            f"{what} is {size}, but the frames are {width} × {height}; make it the same size, "
            "or at least the same shape"
        )


def shrink(image: Image, scene: Scene) -> Image:
    """A frame at the working size."""
    if image.shape[:2] == scene.roi.shape:
        return image
    return cv2.resize(image, scene.roi.shape[::-1], interpolation=cv2.INTER_AREA)
