"""A fitted counter in a file, with all it needs to know of its camera."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, LinAlgWarning

from activehuber.crowd.counter import Counter
from activehuber.crowd.frames import Frames, Image
from activehuber.crowd.preparation import KernelFeatures, Preparation, Scaling, Setting
from activehuber.crowd.scene import MOTION, VIEWS, Scene, working_shape
from activehuber.crowd.temporal import TemporalFeatures
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
    either,
    fits,
    flag,
    items,
    must_be,
    number,
    one_of,
    optional,
    record,
    sequence,
    text,
    whole,
)
from activehuber.runtime.messages import TableError, first_line

# --- what the values must be ------------------------------------------------------------
#
# Sizes besides those of a regressor: h × w pixels, f features before they are prepared, k of
# them in a part, of which c components are kept.


def _shape_fits(value: Any, where: str, sizes: Sizes) -> None:
    """Maps have the working size of the frames, and a person a height where it counts."""
    shape = working_shape(value["height"], value["width"])
    must_be(value["roi"].shape == shape, f"{where}.roi", f"of shape {shape}", value["roi"])
    if isinstance(value["roi"], np.ndarray):
        must_be(bool(value["roi"].any()), f"{where}.roi", "true somewhere", value["roi"])


def _views_fit(value: Any, where: str, sizes: Sizes) -> None:
    """The columns of the views are all features, one view after the other."""
    columns, end = value["columns"], 0
    wanted = (*VIEWS, MOTION) if value["scene"]["motion"] else VIEWS
    for name in wanted:
        found = columns.get(name, (0, 0))
        good = len(columns) == len(wanted) and found[0] == end < found[1]
        must_be(good, f"{where}.columns", f"the features of {', '.join(wanted)}", columns)
        end = found[1]
    must_be(fits("f", end, sizes), f"{where}.columns", f"{sizes['f']} features", end)


def _parts_fit(value: Any, where: str, sizes: Sizes) -> None:
    """What is made of the features is what the regressor takes."""
    widths = [
        part["columns"].shape[0]
        if part["temporal"] is None
        else part["temporal"]["frames"].shape[0]
        for part in value["parts"]
    ]
    must_be(sum(widths) == sizes["d"], f"{where}.parts", f"of {sizes['d']} features", widths)
    for part in value["parts"]:
        columns = part["columns"]
        if isinstance(columns, np.ndarray) and columns.max() >= sizes["f"]:
            raise ValueError(f"{where}.parts take features that there are not")
    distinct(value["names"], f"{where}.names")
    q = sizes["q"]
    good = value["unit"].shape == (q + (q > 1),)
    must_be(good, f"{where}.unit", f"one of {q} targets", value["unit"])
    good = value["n_counted"] <= sizes["n"]
    must_be(good, f"{where}.n_counted", "of the frames", value["n_counted"])


TEMPORAL = record(
    directions=array("f", "k", "c"),
    lag=whole(1),
    frames=array("f", "c", "c"),
    apart=array("f", "c", "c"),
    n_frames=whole(1),
    n_pairs=whole(1),
)
PART = record(name=text, columns=array("i", "k", low=0), temporal=optional(TEMPORAL))
SCENE = record(
    _shape_fits,
    height=whole(1, 2**16),
    width=whole(1, 2**16),
    roi=array("b", "h", "w"),
    person=array("f", "h", "w", low=1e-9, high=1e9),
    level=positive,
    motion=flag,
)
SETTING = record(
    lag=whole(),
    joint=items(text),
    width=positive,
    ridge=positive,
    chain=not_negative,
    agreement=not_negative,
    weights=items(not_negative),
)
# Of a counter, as it has them.
COUNTER = {
    "unit": array("f", range(1, 4), low=0.0, high=1e300),
    "coverage": number(1e-9, 1.0 - 1e-9),
    "held_out": ordinary,
    "values": array("f", "n", "f"),
    "labels": array("f", "n", "q", nan=True),
    "numbers": array("i", "n"),
    "n_counted": whole(1),
    "flagged": array("i", range(2**31)),
}
span = sequence(whole(), whole())
MODEL = record(
    _views_fit,
    _parts_fit,
    scene=SCENE,
    empty=array("u", "h", "w", 3),
    columns=either(
        record(**dict.fromkeys(VIEWS, span)), record(**dict.fromkeys((*VIEWS, MOTION), span))
    ),
    names=items(one_of("count", "left", "right"), "q"),
    setting=SETTING,
    centre=array("f", "f"),
    scale=array("f", "f", low=1e-300),
    parts=items(PART, range(1, 100)),
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
    columns : dict of str to slice
        Features of each view.
    """

    scene: Scene
    counter: Counter
    empty: Image
    columns: dict[str, slice]


def model_bytes(model: CrowdModel) -> bytes:
    """The content of a model file: plain values and arrays."""
    counter, scaling = model.counter, model.counter.preparation.scaling
    fitted = regressor_state(counter.model)
    # Predicting needs neither the chain nor the agreement that the fit has used.
    fitted["params"] |= {"manifold": 0.0, "agreement": 0.0}
    for view in fitted["params"]["views"]:
        view["graph"] = "knn"
    return state_bytes(
        CROWD_FORMAT,
        {
            "scene": {**vars(model.scene)},
            "empty": model.empty,
            "columns": {name: [part.start, part.stop] for name, part in model.columns.items()},
            "names": counter.names,
            "setting": asdict(counter.setting),
            "centre": scaling.centre,
            "scale": scaling.scale,
            "parts": [asdict(part) for part in counter.preparation.parts],
            **{name: getattr(counter, name) for name in COUNTER},
            "model": fitted,
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
        return _model_of(state)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise TableError(f"{Path(path).name} is damaged: {first_line(error)}") from None


def _model_of(state: dict[str, Any]) -> CrowdModel:
    setting: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in state["setting"].items()
    }
    parts = tuple(_part_of(part) for part in state["parts"])
    counter = Counter(
        model=regressor_of(state["model"]),
        setting=Setting(**setting),
        preparation=Preparation(Scaling(state["centre"], state["scale"]), parts),
        names=tuple(state["names"]),
        **{name: state[name] for name in COUNTER},
    )
    columns = {name: slice(*span) for name, span in state["columns"].items()}
    return CrowdModel(Scene(**state["scene"]), counter, state["empty"], columns)


def _part_of(state: dict[str, Any]) -> KernelFeatures:
    if state["temporal"] is None:
        return KernelFeatures(**state)
    temporal = TemporalFeatures(**state["temporal"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", LinAlgWarning)
        try:
            usable = bool(np.all(np.isfinite(temporal.of_features)))
        except (LinAlgError, LinAlgWarning):
            usable = False
    must_be(usable, "what its features predict", "finite", temporal.frames)
    return KernelFeatures(**{**state, "temporal": temporal})


def check_same_camera(model: CrowdModel, frames: Frames) -> None:
    """Raise unless frames have the size that the model was trained on."""
    scene = model.scene
    if (frames.height, frames.width) != (scene.height, scene.width):
        raise TableError(
            f"{frames.path} has frames of {frames.width} × {frames.height}, but the model was "
            f"trained on {scene.width} × {scene.height}; use frames of the same camera and size"
        )
