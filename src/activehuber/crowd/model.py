"""A fitted counter in a file, with all it needs to know of its camera."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from activehuber.crowd.counter import Counter, Scale
from activehuber.crowd.features import MOTION_POWERS, POWERS, grid_of, places_of
from activehuber.crowd.frames import Frames, Image
from activehuber.crowd.scene import Scene, working_shape
from activehuber.persistence.model_files import (
    CROWD_FORMAT,
    REGRESSOR,
    not_negative,
    ordinary,
    positive,
    read_state,
    regressor_of,
    regressor_state,
    state_bytes,
)
from activehuber.persistence.schema import (
    Sizes,
    array,
    distinct,
    flag,
    items,
    must_be,
    number,
    one_of,
    record,
    whole,
)
from activehuber.runtime.messages import TableError, first_line

# --- what the values must be ------------------------------------------------------------
#
# Sizes besides those of a regressor: h × w pixels, c cells, f measures of a frame.


def _shape_fits(value: Any, where: str, sizes: Sizes) -> None:
    """Maps have the working size of the frames, and a person a height where it counts."""
    shape = working_shape(value["height"], value["width"])
    must_be(value["roi"].shape == shape, f"{where}.roi", f"of shape {shape}", value["roi"])
    if isinstance(value["roi"], np.ndarray):
        must_be(bool(value["roi"].any()), f"{where}.roi", "true somewhere", value["roi"])


def _measures_fit(value: Any, where: str, sizes: Sizes) -> None:
    """There are as many measures as the camera has cells and maps, and the model takes them."""
    motion, shape = value["scene"]["motion"], (sizes["h"], sizes["w"])
    k = len(POWERS) + motion * len(MOTION_POWERS)
    cells, places = int(np.prod(grid_of(shape))), int(np.prod(places_of(shape)))
    must_be(sizes["c"] == cells, f"{where}.taken", f"of {cells} cells", value["taken"])
    for name, size in (("totals", k), ("places", k * places), ("cells", k * cells)):
        found = value["scale"][name]
        must_be(found.shape == (size,), f"{where}.scale.{name}", f"{size} numbers", found)
    wanted = 1 + 2 * motion + k * (1 + places + cells)
    must_be(sizes["d"] == wanted, f"{where}.model", f"of {wanted} features", sizes["d"])
    distinct(value["names"], f"{where}.names")


SCENE = record(
    _shape_fits,
    height=whole(1, 2**16),
    width=whole(1, 2**16),
    roi=array("b", "h", "w"),
    person=array("f", "h", "w", low=1e-9, high=1e9),
    level=positive,
    motion=flag,
)
divisors = array("f", range(1, 2**31), low=1e-150, high=1e150)
MEASURES = ("totals", "places", "cells")
# Of a counter, as it has them.
COUNTER = {
    "coverage": number(1e-9, 1.0 - 1e-9),
    "taken": array("b", "c"),
    "local": not_negative,
    "error": ordinary,
    "mean_error": ordinary,
    "independent": number(1.0, 1e300),
    "flagged": array("i", range(2**31)),
}
MODEL = record(
    _measures_fit,
    scene=SCENE,
    empty=array("u", "h", "w", 3),
    names=items(one_of("count", "left", "right"), "q"),
    scale=record(**dict.fromkeys(MEASURES, divisors)),
    **COUNTER,
    model=REGRESSOR,
)


@dataclass(frozen=True)
class CrowdModel:
    """What `crowd train` learns of a camera.

    Attributes
    ----------
    scene : Scene
    counter : Counter
    empty : ndarray of shape (h, w, 3), uint8
        The scene without people.
    """

    scene: Scene
    counter: Counter
    empty: Image


def model_bytes(model: CrowdModel) -> bytes:
    """The content of a model file: plain values and arrays."""
    counter = model.counter
    return state_bytes(
        CROWD_FORMAT,
        {
            "scene": {**vars(model.scene)},
            "empty": model.empty,
            "names": counter.names,
            "scale": {name: getattr(counter.scale, name) for name in MEASURES},
            **{name: getattr(counter, name) for name in COUNTER},
            "model": regressor_state(counter.model),
        },
        MODEL,
    )


def load_model(path: str | Path) -> CrowdModel:
    """Read a model file; one that `crowd train` did not write is refused, never run.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    CrowdModel
    """
    state = read_state(path, CROWD_FORMAT, MODEL)
    try:
        counter = Counter(
            model=regressor_of(state["model"]),
            scale=Scale(**state["scale"]),
            names=tuple(state["names"]),
            labels=state["model"]["y"],
            **{name: state[name] for name in COUNTER},
        )
        return CrowdModel(Scene(**state["scene"]), counter, state["empty"])
    except (TypeError, ValueError, ArithmeticError) as error:
        raise TableError(f"{Path(path).name} is damaged: {first_line(error)}") from None


def check_same_camera(model: CrowdModel, frames: Frames) -> None:
    """Raise unless frames have the size that the model was trained on."""
    scene = model.scene
    if (frames.height, frames.width) != (scene.height, scene.width):
        raise TableError(
            f"{frames.path} has frames of {frames.width} × {frames.height}, but the model was "
            f"trained on {scene.width} × {scene.height}; use frames of the same camera and size"
        )
