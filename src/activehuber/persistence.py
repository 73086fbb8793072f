"""A model in a file: skops with nothing in it but dicts, lists, text, numbers and arrays.

A fitted model is taken apart into plain values and put together again by this module, so the
file names no class of ours and none of anyone else. Before anything is made of a file, its
table of contents is read as text, and a file that names any other type is refused.
"""

from __future__ import annotations

import io
import itertools
import json
import zipfile
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from activehuber.basis import Basis, Columns, Landmarks, Waves, whitened_landmarks
from activehuber.classifier import HLClassifier
from activehuber.features import TableFeatures
from activehuber.fitting import Data, Evidence, Fitted, Settings
from activehuber.noise_rates import Calibration
from activehuber.problem import Certificate
from activehuber.regressor import HLRegressor
from activehuber.rows import LostRows
from activehuber.tables import TableError, first_line, write_file
from activehuber.views import View

FORMAT, CROWD_FORMAT, VERSION = "activehuber model", "activehuber crowd model", 4
# The layout of skops files that is written; skops reads this one and later ones.
SKOPS_PROTOCOL = 2
# The only types a model file may name: (module, class, how skops makes it).
TRUSTED = frozenset(
    [
        ("builtins", "dict", "DictNode"),
        ("builtins", "list", "ListNode"),
        ("builtins", "str", "JsonNode"),
        ("builtins", "str", "TypeNode"),
        ("numpy", "ndarray", "NdArrayNode"),
    ]
)
# Bytes of the table of contents, and of all parts unpacked, at most.
MOST_CONTENTS, MOST_BYTES = 2**28, 2**34
# The key that stands for an array among the values.
ARRAY = "array of the file"
_CERTIFICATE = tuple(field.name for field in fields(Certificate))
_EVIDENCE = tuple(field.name for field in fields(Evidence))


@dataclass(frozen=True)
class Model:
    """A fitted model as it is kept in a file.

    Attributes
    ----------
    pipeline : sklearn.pipeline.Pipeline
        `features` and `estimator`.
    target : str
    id_column : str or None
    coverage : float
        Of the intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from activehuber import audit
    >>> from activehuber.persistence import Model
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> model = Model(audit(X, np.sin(X.ravel())).model, "height", None, 0.9)
    >>> model.pipeline.predict(X[:3]).shape
    (3,)
    """

    pipeline: Pipeline
    target: str
    id_column: str | None
    coverage: float

    @property
    def features(self) -> TableFeatures:
        """The first step."""
        return self.pipeline.named_steps["features"]

    @property
    def estimator(self) -> Any:
        """The last step."""
        return self.pipeline.named_steps["estimator"]


def model_bytes(model: Model) -> bytes:
    """The content of a model file."""
    return state_bytes(
        FORMAT,
        {
            "target": model.target,
            "id": model.id_column,
            "coverage": float(model.coverage),
            "features": model.features.state(),
            "estimator": _estimator_state(model.estimator),
        },
    )


def state_bytes(kind: str, state: dict[str, Any]) -> bytes:
    """A model file of some kind; `state` holds plain values and arrays only."""
    import activehuber

    head = {"format": kind, "version": VERSION, "activehuber": activehuber.__version__}
    arrays: dict[str, np.ndarray] = {}
    values = json.dumps(_without_arrays({**head, **state}, arrays, "model"))
    return _skops_bytes(values, arrays)


def save_model(model: Model, path: str | Path) -> None:
    """Write a model file in one step.

    Parameters
    ----------
    model : Model
    path : str or Path

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from activehuber import audit
    >>> from activehuber.persistence import Model, save_model
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> model = Model(audit(X, np.sin(X.ravel())).model, "y", id_column=None, coverage=0.9)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, Path(folder) / "model.skops")
    ...     [path.name for path in Path(folder).iterdir()]
    ['model.skops']
    """
    write_file(Path(path), model_bytes(model))


def load_model(path: str | Path) -> Model:
    """Read a model file; one that was not made by `save_model` is refused, never run.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Model

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from activehuber import audit
    >>> from activehuber.persistence import Model, load_model, save_model
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> pipeline = audit(X, np.sin(X.ravel())).model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.skops"
    ...     save_model(Model(pipeline, target="y", id_column=None, coverage=0.9), path)
    ...     again = load_model(path)
    >>> bool(np.allclose(again.pipeline.predict(X), pipeline.predict(X)))
    True
    """
    state = read_state(path, FORMAT)
    try:
        pipeline = Pipeline(
            [
                ("features", TableFeatures.from_state(state["features"])),
                ("estimator", _estimator_of(state["estimator"])),
            ]
        )
        name = state["id"]
        model = Model(
            pipeline,
            str(state["target"]),
            None if name is None else str(name),
            float(state["coverage"]),
        )
        _check_fit(model)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise TableError(f"{Path(path).name} is damaged: {first_line(error)}") from None
    return model


def read_state(path: str | Path, kind: str) -> dict[str, Any]:
    """The plain values of a model file of some kind; any other file is refused, never run."""
    path = Path(path)
    if path.is_dir():
        raise TableError(f"{path} is a directory; give the file model.skops in it")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file") from None
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from None
    state = _read_state(content, path.name)
    found = state.get("format") if isinstance(state, dict) else None
    if found != kind:
        known = {FORMAT: "activehuber predict", CROWD_FORMAT: "activehuber crowd count"}
        use = f"; it is one for {known[str(found)]}" if str(found) in known else ""
        raise TableError(f"{path.name} is no model for {known[kind]}{use}")
    version = state.get("version")
    if version != VERSION:
        raise TableError(
            f"{path.name} has format {version!r}, but this version of activehuber reads "
            f"{VERSION}; it was written by activehuber {state.get('activehuber')!r}: use that, "
            "or make the model again"
        )
    return state


def _skops_bytes(values: str, arrays: dict[str, np.ndarray]) -> bytes:
    """The file that skops writes for `{"values": values, "arrays": arrays}`.

    Written here because importing skops takes as long as auditing a small table; what is
    written is read with skops. Nothing in it depends on when or where it was written.
    """
    numbers = itertools.count(1)

    def node(kind: str, maker: str, module: str = "builtins", **more: Any) -> dict[str, Any]:
        named = {"__class__": kind, "__module__": module, "__loader__": maker}
        return {**named, **more, "__id__": next(numbers)}

    def mapping(content: dict[str, Any]) -> dict[str, Any]:
        types = node("list", "ListNode", content=[node("str", "TypeNode") for _ in content])
        return node("dict", "DictNode", content=content, key_types=types)

    files = {name: f"{number}.npy" for number, name in enumerate(arrays)}
    contents = mapping(
        {
            "values": node("str", "JsonNode", content=json.dumps(values), is_json=True),
            "arrays": mapping(
                {
                    name: node("ndarray", "NdArrayNode", "numpy", type="numpy", file=file)
                    for name, file in files.items()
                }
            ),
        }
    )
    contents |= {"protocol": SKOPS_PROTOCOL, "_skops_version": "activehuber"}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, file in files.items():
            part = io.BytesIO()
            np.save(part, arrays[name], allow_pickle=False)
            _add_part(archive, file, part.getvalue())
        _add_part(archive, "schema.json", json.dumps(contents).encode())
    return made.getvalue()


def _add_part(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    part = zipfile.ZipInfo(name)
    part.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(part, content, compresslevel=1)


def _read_state(content: bytes, name: str) -> dict[str, Any]:
    """The plain values of a file, after a look at every type that it names."""
    foreign = f"{name} is no model file of activehuber, or is damaged; it was not opened"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {part.filename: part.file_size for part in archive.infolist()}
            if "schema.json" not in parts:
                raise TableError(foreign)
            if parts["schema.json"] > MOST_CONTENTS or sum(parts.values()) > MOST_BYTES:
                raise TableError(f"{name} unpacks to far too much; it was not opened")
            contents = json.loads(archive.read("schema.json"))
        named = set(_named_types(contents))
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, RecursionError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(foreign) from None
    except (NotImplementedError, RuntimeError, KeyError, zlib.error):
        raise TableError(foreign) from None
    strange = sorted(f"{module}.{kind}" for module, kind, maker in named - TRUSTED)
    if strange or not named:
        found = f" ({strange[0]})" if strange else ""
        raise TableError(
            f"{name} holds types that no model of activehuber has{found}; it was not opened"
        )
    from skops import io as skops

    try:
        state = skops.loads(content, trusted=[])
    except Exception as error:
        # skops lets through whatever a damaged part raises; nothing has been run.
        raise TableError(f"{name} is damaged: {first_line(error)}") from None
    try:
        return _with_arrays(json.loads(state["values"]), state["arrays"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise TableError(foreign) from None


def _named_types(node: Any) -> Any:
    """All (module, class, maker) in a table of contents; a nameless node is strange too."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            if {"__class__", "__module__", "__loader__"} & set(item):
                maker = str(item.get("__loader__"))
                kind = item.get("type", "numpy") if maker == "NdArrayNode" else "numpy"
                # Arrays of objects are not ours either.
                maker = maker if kind == "numpy" else f"{maker} of objects"
                yield str(item.get("__module__")), str(item.get("__class__")), maker
            stack.extend(value for value in item.values() if isinstance(value, (list, dict)))


# --- estimators, taken apart and put together -------------------------------------------


def _estimator_state(model: Any) -> dict[str, Any]:
    if isinstance(model, HLClassifier):
        calibration: Calibration = model._calibration
        rates = model.noise_rates_
        return {
            "kind": "classifier",
            "params": _params_state(model),
            "classes": np.asarray(model.classes_),
            "regressor": regressor_state(model.estimator_),
            "cut": float(model.cut_),
            "noise_rates": None if rates is None else [float(rate) for rate in rates],
            "calibration": [calibration.above, calibration.below],
            "removed": model.removed_,
            "label_quality": model.label_quality_,
        }
    if isinstance(model, HLRegressor):
        return {"kind": "regressor", **regressor_state(model)}
    raise TableError(
        f"a {type(model).__name__} cannot be saved; only HLRegressor and HLClassifier can"
    )


def _estimator_of(state: dict[str, Any]) -> Any:
    if state["kind"] == "regressor":
        return regressor_of(state)
    if state["kind"] != "classifier":
        raise ValueError(f"unknown kind {state['kind']!r}")
    model = HLClassifier(**_params_of(state["params"]))
    inner = regressor_of(state["regressor"])
    model.classes_, model.estimator_ = np.asarray(state["classes"]), inner
    rates = state["noise_rates"]
    model.noise_rates_ = None if rates is None else (float(rates[0]), float(rates[1]))
    model._take_attributes()
    model.removed_ = np.asarray(state["removed"], dtype=bool)
    model.label_quality_ = np.asarray(state["label_quality"], dtype=np.float64)
    model.cut_ = float(state["cut"])
    above, below = state["calibration"]
    model._calibration = Calibration(float(above), float(below))
    model.n_features_in_ = inner.n_features_in_
    return model


def regressor_state(model: HLRegressor) -> dict[str, Any]:
    """A fitted model as plain values and arrays."""
    if model.X_fit_ is None:
        raise TableError("a model with a precomputed kernel cannot be saved")
    evidence = model._label_evidence()
    y, weights, trusted = model._labels_fit
    params = _params_state(model)
    # As the fit used them: what "scale" and "loo" stood for is not worked out again.
    params["alpha"] = float(model._settings.alpha)
    if not isinstance(params["random_state"], int):
        params["random_state"] = None  # a generator has moved on: it says nothing of this fit
    gammas = [view.kernel.gamma for view in model._settings.views]
    if params["views"] is None:
        params["gamma"] = gammas[0]
    else:
        for view, gamma in zip(params["views"], gammas, strict=True):
            view["gamma"] = gamma
    approximated = model._settings.approximation is not None
    return {
        "params": params,
        # The rows of an approximated fit are where they are; its basis is all that is needed.
        "X": None if approximated else model.X_fit_,
        "n_features": int(model.n_features_in_),
        "basis": _basis_state(model._fitted[0].basis),
        "y": y,
        "weights": weights,
        "trusted": np.array(trusted),
        "several": bool(model._several_targets),
        "fitted": [
            _fitted_state(fitted, found)
            for fitted, found in zip(model._fitted, evidence, strict=True)
        ],
    }


def _basis_state(basis: Basis | None) -> list[Any] | None:
    if basis is None:
        return None
    states: list[Any] = []
    for function in basis.functions:
        if isinstance(function, Landmarks):
            states.append({"landmarks": function.rows})
        elif isinstance(function, Waves):
            states.append({"frequencies": function.frequencies})
        else:
            assert isinstance(function, Columns)
            states.append({"centre": function.centre, "normalised": function.normalised})
    return states


def _basis_of(states: list[Any] | None, settings: Settings) -> Basis | None:
    if states is None:
        return None
    functions: list[Any] = []
    for state, view in zip(states, settings.views, strict=True):
        arrays = {k: np.asarray(v, dtype=np.float64) for k, v in state.items()}
        if "landmarks" in state:
            functions.append(whitened_landmarks(view.kernel, arrays["landmarks"]))
        elif "frequencies" in state:
            functions.append(Waves(arrays["frequencies"]))
        else:
            functions.append(Columns(arrays["centre"], bool(state["normalised"])))
    return Basis(tuple(view.columns for view in settings.views), tuple(functions))


def _fitted_state(fitted: Fitted, evidence: Evidence) -> dict[str, Any]:
    certificate = {key: float(getattr(fitted.certificate, key)) for key in _CERTIFICATE}
    return {
        "coefficients": fitted.coefficients,
        "intercept": float(fitted.intercept),
        "view_weights": fitted.view_weights,
        "view_weights_residual": float(fitted.view_weights_residual),
        "threshold": float(fitted.threshold),
        "thresholds": fitted.thresholds,
        "removed": fitted.removed,
        "residuals": fitted.residuals,
        "certificate": certificate,
        "n_iter": int(fitted.n_iter),
        "n_labelled": int(fitted.n_labelled),
        "sigma": None if fitted.sigma is None else float(fitted.sigma),
        "evidence": {key: getattr(evidence, key) for key in _EVIDENCE},
    }


def regressor_of(state: dict[str, Any]) -> HLRegressor:
    """The inverse of `regressor_state`."""
    model = HLRegressor(**_params_of(state["params"]))
    X: Any
    if model.approximation is None:
        X = np.ascontiguousarray(state["X"], dtype=np.float64)
        model.n_features_in_ = X.shape[1]
    else:
        model.n_features_in_ = int(state["n_features"])
        X = LostRows(len(state["y"]), model.n_features_in_)
    data = Data(
        X,
        np.asarray(state["y"], dtype=np.float64),
        np.asarray(state["weights"], dtype=np.float64),
        np.asarray(state["trusted"], dtype=bool),
    )
    model._check_parameters()
    model._several_targets = bool(state["several"])
    settings = model._resolve(X, data)
    basis = _basis_of(state["basis"], settings)
    shape = (len(X), len(settings.views)) if basis is None else (basis.width,)
    fitted = [
        replace(_fitted_of(item, len(X), shape, len(settings.views)), basis=basis)
        for item in state["fitted"]
    ]
    if data.y.shape != (len(X), len(fitted)) or data.weights.shape != (len(X),):
        raise ValueError("labels do not fit the rows")
    model._assign(settings, data, fitted)
    return model


def _fitted_of(item: dict[str, Any], n: int, shape: tuple[int, ...], m: int) -> Fitted:
    def array(key: str, shape: tuple[int, ...] | None, kind: Any = np.float64) -> np.ndarray:
        values = np.asarray(item[key] if key in item else evidence[key], dtype=kind)
        if shape is not None and values.shape != shape:
            raise ValueError(f"{key} has shape {values.shape}, expected {shape}")
        return values

    evidence, sigma = item["evidence"], item["sigma"]
    found: dict[str, Any] = {
        key: float(evidence[key]) if key == "scale" else array(key, (n,)) for key in _EVIDENCE
    }
    return Fitted(
        coefficients=array("coefficients", shape),
        intercept=float(item["intercept"]),
        view_weights=array("view_weights", (m,)),
        view_weights_residual=float(item["view_weights_residual"]),
        threshold=float(item["threshold"]),
        thresholds=array("thresholds", None),
        removed=array("removed", (n,), bool),
        residuals=array("residuals", (n,)),
        certificate=Certificate(**{key: item["certificate"][key] for key in _CERTIFICATE}),
        n_iter=int(item["n_iter"]),
        n_labelled=int(item["n_labelled"]),
        sigma=None if sigma is None else float(sigma),
        evidence=Evidence(**found),
    )


def _params_state(model: Any) -> dict[str, Any]:
    """Parameters as plain values; views as dicts of theirs."""
    params = model.get_params(deep=False)
    if params["views"] is not None:
        params["views"] = [
            _plain_params(view.get_params(deep=False)) for view in params["views"]
        ]
    return _plain_params(params)


def _plain_params(params: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for key, value in params.items():
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, tuple):
            value = list(value)
        out[key] = value
    return out


def _params_of(state: dict[str, Any]) -> dict[str, Any]:
    params = dict(state)
    if params["views"] is not None:
        params["views"] = [View(**view) for view in params["views"]]
    return params


def _without_arrays(value: Any, arrays: dict[str, np.ndarray], where: str) -> Any:
    """Values that JSON can hold; arrays are put aside and their names left in place."""
    if isinstance(value, dict):
        return {key: _without_arrays(v, arrays, f"{where}.{key}") for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(item, arrays, where) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        value = np.array(value.tolist())
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
        name = str(len(arrays))
        # A copy of its own: skops names parts by the identity of arrays.
        arrays[name] = np.array(value)
        return {ARRAY: name}
    raise TableError(f"{where} is a {type(value).__name__}, which a model file cannot hold")


def _with_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The inverse of `_without_arrays`."""
    if isinstance(value, dict):
        if set(value) == {ARRAY}:
            return arrays[value[ARRAY]]
        return {key: _with_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item, arrays) for item in value]
    return value


def _check_fit(model: Model) -> None:
    estimator = model.estimator
    width = len(model.features.source_)
    if estimator.n_features_in_ != width:
        raise ValueError(f"the fit has {estimator.n_features_in_} features, the table {width}")
