"""A fitted counter in a file, with all it needs to know of its camera."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from activehuber.crowd.counter import Counter, Part, Preparation, Scaling, Setting
from activehuber.crowd.features import Scene, working_shape
from activehuber.crowd.frames import Frames, Image
from activehuber.crowd.lasting import Lasting
from activehuber.persistence import (
    CROWD_FORMAT,
    read_state,
    regressor_of,
    regressor_state,
    state_bytes,
)
from activehuber.tables import TableError, first_line


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
    scene, counter = model.scene, model.counter
    fitted = regressor_state(counter.model)
    # Predicting needs neither the chain nor the agreement that the fit has used.
    fitted["params"] |= {"manifold": 0.0, "agreement": 0.0}
    for view in fitted["params"]["views"]:
        view["graph"] = "knn"
    return state_bytes(
        CROWD_FORMAT,
        {
            "scene": {**vars(scene)},
            "empty": model.empty,
            "columns": {name: [part.start, part.stop] for name, part in model.columns.items()},
            "names": list(counter.names),
            "setting": {
                **asdict(counter.setting),
                "joint": list(counter.setting.joint),
                "weights": list(counter.setting.weights),
            },
            "centre": counter.preparation.scaling.centre,
            "scale": counter.preparation.scaling.scale,
            "parts": [asdict(part) for part in counter.preparation.parts],
            "unit": counter.unit,
            "coverage": counter.coverage,
            "held_out": counter.held_out,
            "values": counter.values,
            "labels": counter.labels,
            "numbers": counter.numbers,
            "n_counted": counter.n_counted,
            "doubted": counter.doubted,
            "model": fitted,
        },
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
    state = read_state(path, CROWD_FORMAT)
    try:
        return _model_of(state)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise TableError(f"{Path(path).name} is damaged: {first_line(error)}") from None


def _model_of(state: dict[str, Any]) -> CrowdModel:
    scene = Scene(
        height=int(state["scene"]["height"]),
        width=int(state["scene"]["width"]),
        roi=np.asarray(state["scene"]["roi"], dtype=bool),
        person=np.asarray(state["scene"]["person"], dtype=np.float64),
        level=float(state["scene"]["level"]),
        motion=bool(state["scene"]["motion"]),
    )
    setting = dict(state["setting"])
    joint = tuple(str(name) for name in setting.pop("joint"))
    weights = tuple(float(c) for c in setting.pop("weights"))
    lag = int(setting.pop("lag"))
    numbers = {name: float(value) for name, value in setting.items()}
    parts = [_part_of(part) for part in state["parts"]]
    scaling = Scaling(np.asarray(state["centre"]), np.asarray(state["scale"]))
    counter = Counter(
        model=regressor_of(state["model"]),
        setting=Setting(lag=lag, **numbers, joint=joint, weights=weights),
        preparation=Preparation(scaling, tuple(parts)),
        names=tuple(str(name) for name in state["names"]),
        unit=np.asarray(state["unit"], dtype=np.float64),
        coverage=float(state["coverage"]),
        held_out=float(state["held_out"]),
        values=np.asarray(state["values"], dtype=np.float64),
        labels=np.asarray(state["labels"], dtype=np.float64),
        numbers=np.asarray(state["numbers"], dtype=int),
        n_counted=int(state["n_counted"]),
        doubted=np.asarray(state["doubted"], dtype=int),
    )
    empty = np.asarray(state["empty"], dtype=np.uint8)
    columns = {name: slice(int(a), int(b)) for name, (a, b) in state["columns"].items()}
    model = CrowdModel(scene, counter, empty, columns)
    _check_parts(model)
    return model


def _part_of(state: dict[str, Any]) -> Part:
    lasting = state["lasting"]
    return Part(
        name=str(state["name"]),
        columns=np.asarray(state["columns"], dtype=int),
        lasting=None if lasting is None else _lasting_of(lasting),
    )


def _lasting_of(state: dict[str, Any]) -> Lasting:
    return Lasting(
        directions=np.asarray(state["directions"], dtype=np.float64),
        lag=int(state["lag"]),
        frames=np.asarray(state["frames"], dtype=np.float64),
        apart=np.asarray(state["apart"], dtype=np.float64),
        n_frames=int(state["n_frames"]),
        n_pairs=int(state["n_pairs"]),
    )


def _part_fits(part: Part, width: int) -> bool:
    """Whether a part takes columns that there are, and makes of them what it can."""
    if not np.all((part.columns >= 0) & (part.columns < width)):
        return False
    lasting = part.lasting
    if lasting is None:
        return True
    m = len(lasting.frames)
    return (
        lasting.directions.shape == (len(part.columns), m)
        and lasting.frames.shape == lasting.apart.shape == (m, m)
        and min(lasting.n_frames, lasting.n_pairs, lasting.lag) > 0
    )


def _check_parts(model: CrowdModel) -> None:
    """Raise unless shapes fit together and numbers are what they stand for."""
    scene, counter = model.scene, model.counter
    width, q = max(part.stop for part in model.columns.values()), len(counter.names)
    scaling, parts = counter.preparation.scaling, counter.preparation.parts
    shape = working_shape(scene.height, scene.width)
    targets, rows = counter.model.intercept_, np.asarray(counter.model.X_fit_)
    fits = (
        scene.roi.shape == scene.person.shape == shape
        and model.empty.shape == (*shape, 3)
        and scaling.centre.shape == scaling.scale.shape == (width,)
        and tuple(model.columns) == scene.views
        and all(_part_fits(part, width) for part in parts)
        and sum(part.width for part in parts) == counter.model.n_features_in_
        and np.size(targets) == q
        and counter.unit.shape == (q + (q > 1),)
        and len(counter.numbers) == len(counter.values) == len(rows)
        and counter.values.shape == (len(rows), width)
        and counter.labels.shape == (len(rows), q)
    )
    if not fits:
        raise ValueError("its parts do not fit together")
    numbers = np.concatenate(
        [
            *(counter.unit, scaling.centre, scene.person.ravel(), np.ravel(targets)),
            *(counter.model.dual_coef_.ravel(), rows.ravel()),
            *(part.lasting.of_features.ravel() for part in parts if part.lasting is not None),
            *(counter.values.ravel(), counter.labels[~np.isnan(counter.labels)]),
            [counter.coverage, counter.held_out],
        ]
    )
    positive = np.concatenate([scaling.scale, scene.person.ravel(), [scene.level]])
    if not (np.all(np.isfinite(numbers)) and np.all(positive > 0.0) and scene.roi.any()):
        raise ValueError("a number in it is not what it stands for")
    if np.any(counter.unit < 0.0) or counter.setting.lag < 0:
        raise ValueError("a number in it is out of range")


def check_same_camera(model: CrowdModel, frames: Frames) -> None:
    """Raise unless frames have the size that the model was trained on."""
    scene = model.scene
    if (frames.height, frames.width) != (scene.height, scene.width):
        raise TableError(
            f"{frames.path} has frames of {frames.width} × {frames.height}, but the model was "
            f"trained on {scene.width} × {scene.height}; use frames of the same camera and size"
        )
