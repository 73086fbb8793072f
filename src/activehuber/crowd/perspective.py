"""How tall a person is by the row of the feet, learnt from the foreground alone.

A person who walks by alone is a blob of foreground, upright and whole; its height over the row
where it ends lies near a straight line. Pieces of people and groups lie anywhere else, so the
line is the one that most sightings are near to.
"""

from __future__ import annotations

import numpy as np

from activehuber._typing import Matrix, Vector
from activehuber.crowd.frames import Image, cv2

# A blob that may be one person: heights over its width, share of its box that it fills, and
# its height over that of the frame.
UPRIGHT, FILLED, LEAST_TALL = (1.3, 5.0), 0.35, 0.05
# Sightings closer than so many pixels in foot, place and height are one: who stands still for
# an hour has one voice.
SAME_PIXELS = 3.0
# A sighting speaks for lines within this share of its height.
NEARNESS = 0.12
# Bands of feet: the more sightings one holds, the less each says.
BANDS = 24
FEWEST_SIGHTINGS = 30
# No one is counted who is smaller than this share of the frame; no line goes below.
SMALLEST, TALLEST = 0.03, 0.9
# Heights tried at the far end and at the bottom of the frame.
TRIED = 40


def sightings(foreground: Image) -> Matrix:
    """Row of the feet, middle and height of blobs that may be a person, shape (k, 3)."""
    rows, columns = foreground.shape
    boxes = cv2.connectedComponentsWithStats(foreground)[2][1:].astype(float)
    left, top, width, height, area = boxes.T
    # What the frame cuts is not whole.
    whole = (left > 1) & (top > 1) & (left + width < columns - 1) & (top + height < rows - 1)
    upright = (height > UPRIGHT[0] * width) & (height < UPRIGHT[1] * width)
    good = whole & upright & (area > FILLED * width * height) & (height >= LEAST_TALL * rows)
    return np.column_stack([top + height, left + width / 2.0, height])[good]


def learn_heights(seen: Matrix, rows: int) -> Vector:
    """Height of a person whose feet are in each row of the frame.

    Parameters
    ----------
    seen : ndarray of shape (k, 3)
        Sightings of all frames.
    rows : int
        Of the frame.

    Returns
    -------
    ndarray of shape (rows,)
        The same height everywhere if there are too few sightings to tell.
    """
    distinct = SAME_PIXELS * np.unique(np.round(seen / SAME_PIXELS), axis=0)
    if len(distinct) < FEWEST_SIGHTINGS:
        return np.full(rows, rows / 6.0)
    foot, tall = distinct[:, 0], distinct[:, 2]
    band = (foot * BANDS / rows).astype(int)
    voice = tall / np.sqrt(np.bincount(band, tall)[band])
    far = np.quantile(foot, 0.05)
    tried = rows * np.geomspace(SMALLEST, TALLEST, TRIED)
    ends = np.array([(a, b) for a in tried for b in tried if a <= 1.02 * b])

    def heights(ends: Matrix, where: Vector) -> Matrix:
        line = ends[:, :1] + np.diff(ends) * (where - far) / max(rows - far, 1.0)
        return np.maximum(line, SMALLEST * rows)

    apart = np.log(tall / heights(ends, foot)) / NEARNESS
    best = int(np.argmax(np.exp(-0.5 * apart**2) @ voice))
    return heights(ends[best : best + 1], np.arange(float(rows)))[0]


def drawn_heights(image: Image, heights: Vector) -> Image:
    """An image of working size with upright bars as tall as a person who stands there."""
    out, (rows, columns) = image.copy(), image.shape[:2]
    for k, foot in enumerate(np.linspace(0.4 * rows, rows - 2, 6).astype(int)):
        x = round((k + 0.5) * columns / 6)
        cv2.line(out, (x, int(foot)), (x, int(foot - heights[foot])), (0, 200, 0), 2)
    return out
