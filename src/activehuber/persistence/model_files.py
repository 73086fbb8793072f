"""A model in a file: dicts, lists, text, numbers and arrays, and nothing else.

A fitted model is taken apart into plain values and put together again by this module, so the
file names no class of ours and none of anyone else. What such values must be is said once, in
the rules below: they are checked when a file is written, when its arrays have told their shapes
but have not been read, and when they have been.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from activehuber.data.encoding import CATEGORY, DATE, DATE_PARTS, FLAG, NUMBER, TableFeatures
from activehuber.data.rows import LostRows
from activehuber.data.tables import DATE_LAYOUTS, TableError, first_line, write_file
from activehuber.estimators.classifier import HLClassifier
from activehuber.estimators.regressor import HLRegressor
from activehuber.fitting.result import Fitted, LabelEvidence
from activehuber.fitting.settings import Data, Settings
from activehuber.fitting.validation import ALGORITHM_NAMES, THRESHOLD_NAMES, check_weights
from activehuber.graphs.laplacians import GRAPH_NAMES
from activehuber.kernels.feature_maps import (
    APPROXIMATION_NAMES,
    Basis,
    Columns,
    Landmarks,
    Waves,
)
from activehuber.kernels.kernel import KERNEL_NAMES
from activehuber.labels.noise_rates import SLOPES, Calibration
from activehuber.persistence.archive import pack, unpack
from activehuber.persistence.schema import (
    Rule,
    Sizes,
    array,
    case,
    distinct,
    either,
    fits,
    flag,
    items,
    must_be,
    nothing,
    number,
    one_of,
    optional,
    record,
    sequence,
    shown,
    text,
    whole,
)
from activehuber.problem.certificate import Certificate
from activehuber.views import View

FORMAT, CROWD_FORMAT, VERSION = "activehuber model", "activehuber crowd model", 5
COMMANDS = {FORMAT: "activehuber predict", CROWD_FORMAT: "activehuber crowd count"}
# What every file says of itself.
HEAD = ("format", "version", "activehuber")
_CERTIFICATE = tuple(field.name for field in fields(Certificate))
_EVIDENCE = tuple(field.name for field in fields(LabelEvidence))

# --- what the values must be ------------------------------------------------------------
#
# Sizes: n rows, d features, q targets, m views, v features of a view, p functions of a basis,
# k columns of numbers, c columns in use.

# Numbers that can be added up without becoming infinite.
ordinary = number(-1e300, 1e300)
positive, not_negative = number(0.0, above=True), number(0.0)
anything = number(finite=False)


def _numbers_fit(value: Any, where: str, sizes: Sizes) -> None:
    """Numbers over their scale must be finite; what is learnt from a table is far from that."""
    fill, centre, scale = value["fill"], value["centre"], value["scale"]
    if isinstance(scale, np.ndarray):
        used = scale > 0.0
        far = np.maximum(np.abs(fill), np.abs(centre))[used]
        if np.any(1e-15 * far > scale[used]):
            raise ValueError(f"{where} has scales that are far too small")


def _numbers(size: int | str) -> Rule:
    """Fill, centre and scale of columns of numbers."""
    each = array("f", size)
    return record(
        {"fill": each, "centre": each, "scale": array("f", size, low=0.0)}, _numbers_fit
    )


def _columns_fit(value: Any, where: str, sizes: Sizes) -> None:
    """Every column has what its kind asks for, and no other has."""
    kinds = dict(zip(value["columns"], value["kinds"], strict=True))
    distinct(value["columns"], f"{where}.columns")
    for kind, key in ((CATEGORY, "categories"), (DATE, "dates")):
        named = [entry[0] for entry in value[key]]
        if sorted(named) != sorted(name for name in kinds if kinds[name] == kind):
            raise ValueError(f"{where}.{key} are not those of the columns")
    for name, levels, _ in value["categories"]:
        distinct(levels, f"{where}: levels of {shown(name)}")
    found = value["kinds"].count(NUMBER)
    must_be(fits("k", found, sizes), where, f"of {sizes['k']} columns of numbers", found)


FEATURES = record(
    {
        "columns": items(text, "c"),
        "kinds": items(one_of(NUMBER, FLAG, CATEGORY, DATE), "c"),
        "numbers": _numbers("k"),
        "gaps": array("b", "k"),
        "categories": items(sequence(text, items(text), flag)),
        "dates": items(
            sequence(
                text,
                whole(-(2**63) + 1, 2**63 - 1),  # the first number of all is no date
                flag,
                optional(one_of(*DATE_LAYOUTS)),
                _numbers(len(DATE_PARTS)),
            )
        ),
        "left_out": items(sequence(text, text)),
        "sentences": items(text),
    },
    _columns_fit,
)

# What the regressor itself and a view have in common.
KERNEL: dict[str, Rule] = {
    "kernel": one_of(*(name for name in KERNEL_NAMES if name != "precomputed")),
    "degree": whole(1),
    "coef0": ordinary,
    "kernel_params": nothing,
    "graph": either(one_of(*GRAPH_NAMES), array("fiub", "n", "n")),
    "n_neighbors": whole(1),
}
VIEW = record(
    {
        "columns": array("i", "v", low=0),
        "gamma": either(positive, array("f", "v", low=0.0)),
        **KERNEL,
        "name": optional(text),
    }
)


def _views(value: Any, where: str, sizes: Sizes) -> None:
    """Their number is m, and v0, v1, ... say how many features each has."""
    if value is None:
        must_be(fits("m", 1, sizes), where, f"those of {sizes['m']} weights", value)
        sizes["v0"] = sizes["d"]
        return
    items(VIEW, "m")(value, where, sizes)
    for place, view in enumerate(value):
        sizes[f"v{place}"] = view["columns"].shape[0]


PARAMS: dict[str, Rule] = {
    "views": _views,
    **KERNEL,
    "gamma": either(
        one_of("scale", "auto", "loo"),
        positive,
        items(not_negative, "d"),
        array("fiub", "d", low=0.0),
    ),
    "view_weights": either(
        one_of("uniform", "learn"), items(not_negative, "m"), array("fiub", "m", low=0.0)
    ),
    "alpha": positive,
    "manifold": not_negative,
    "agreement": not_negative,
    "threshold": either(one_of(*THRESHOLD_NAMES), number(0.0, finite=False)),
    "removal": optional(positive),
    "n_refinements": whole(),
    "threshold_step": positive,
    "algorithm": one_of(*ALGORITHM_NAMES),
    "fit_intercept": either(flag, ordinary),
    "tol": positive,
    "max_iter": whole(1),
    "verbose": either(flag, ordinary),
    "approximation": optional(one_of(*APPROXIMATION_NAMES)),
    "n_components": whole(1),
    "block_size": either(one_of("auto"), whole(1)),
    "random_state": optional(whole(0, 2**32 - 1)),
}
# A classifier keeps what it was given; what it came to is in its regressor.
CLASSIFIER_PARAMS = PARAMS | {
    "alpha": either(one_of("loo"), positive),
    "noise_rates": either(
        nothing, one_of("estimate"), sequence(number(0.0, 1.0), number(0.0, 1.0))
    ),
}
FITTED: dict[str, Rule] = {
    "intercept": ordinary,
    "view_weights": array("f", "m", low=0.0, high=1e6),
    "view_weights_residual": anything,
    "threshold": anything,
    "thresholds": array("f", range(1, 2**20), nan=True, inf=True),
    "removed": array("b", "n"),
    "residuals": array("f", "n", nan=True),
    "certificate": record(dict.fromkeys(_CERTIFICATE, anything)),
    "n_iter": whole(),
    "n_labelled": whole(),
    "sigma": optional(not_negative),
    "evidence": record(
        {
            "scale": anything,
            "loo_residuals": array("f", "n", nan=True, low=-1e300, high=1e300),
            "loo_inflation": array("f", "n", nan=True, inf=True),
            "label_quality": array("f", "n", nan=True, low=0.0, high=1.0),
        }
    ),
}


FUNCTIONS = case(
    lambda state: next(iter(sorted(state)), ""),
    {
        "landmarks": record({"landmarks": array("f", "w", "v")}),
        "frequencies": record({"frequencies": array("f", "v", "w")}),
        "centre": record({"centre": array("f", "v"), "normalised": flag}),
    },
)


def _basis(value: Any, where: str, sizes: Sizes) -> None:
    """Functions of the views, p in all, of as many features as these have."""
    must_be(isinstance(value, list) and len(value) == sizes["m"], where, "of all views", value)
    sizes["p"] = 0
    for place, state in enumerate(value):
        own = {"v": sizes[f"v{place}"]}
        FUNCTIONS(state, f"{where}[{place}]", own)
        # Of the columns themselves there are as many as features; a wave is two functions.
        sizes["p"] += own.get("w", own["v"]) * (2 if "frequencies" in state else 1)


def _fit_fits(value: Any, where: str, sizes: Sizes) -> None:
    """What cannot be said of one value alone."""
    must_be(min(sizes[s] for s in "nqdm") > 0, where, "of something", 0)
    must_be(value["several"] or sizes["q"] == 1, f"{where}.several", "true", value["several"])
    gamma, kind = value["params"]["gamma"], value["params"]["approximation"]
    known = value["params"]["views"] is not None or not isinstance(gamma, (str, list))
    must_be(known, f"{where}.params.gamma", "what it came to", gamma)
    must_be((kind is None) == (value["basis"] is None), where, "one with a basis", kind)
    if isinstance(value["y"], np.ndarray):
        weights = check_weights(value["weights"], value["y"])
        for place, each in enumerate(value["fitted"]):
            errors = each["evidence"]["loo_residuals"]
            if not np.any(~each["removed"] & ~np.isnan(errors) & (weights > 0.0)):
                raise ValueError(f"{where}.fitted[{place}] has no label in use")


def _regressor(more: dict[str, Rule]) -> Rule:
    """A fitted `HLRegressor`, exact or in a basis, with more in the same record."""

    def kind(X: Rule, basis: Rule, coefficients: Rule) -> Rule:
        fitted = record({**FITTED, "coefficients": coefficients})
        return record(
            {
                **more,
                "n_features": whole(1, size="d"),
                "params": record(PARAMS),
                "X": X,
                "basis": basis,
                "y": array("f", "n", "q", nan=True),
                "weights": array("f", "n", low=0.0),
                "trusted": array("b", "n", "q"),
                "several": flag,
                "fitted": items(fitted, "q"),
            },
            _fit_fits,
        )

    exact = kind(array("f", "n", "d"), nothing, array("f", "n", "m", low=-1e300, high=1e300))
    approximated = kind(nothing, _basis, array("f", "p", low=-1e300, high=1e300))
    choices = {True: exact, False: approximated}
    return case(lambda state: state.get("X") is not None, choices)


def _classes_fit(value: Any, where: str, sizes: Sizes) -> None:
    """As many targets as classes, but one for two of them."""
    classes, rates = value["classes"], value["noise_rates"]
    k, several = classes.shape[0], value["regressor"]["several"]
    good = k > 1 and sizes["q"] == (1 if k == 2 else k) and several == (k > 2)
    must_be(good, f"{where}.classes", f"those of {sizes['q']} targets", classes)
    good = rates is None or (k == 2 and sum(rates) < 1.0)
    must_be(good, f"{where}.noise_rates", "two with a sum below 1", rates)
    if isinstance(classes, np.ndarray):
        distinct(classes.tolist(), f"{where}.classes")
        if classes.dtype.kind == "U":
            items(text)(classes.tolist(), f"{where}.classes", sizes)


REGRESSOR = _regressor({})
slope = number(*SLOPES)
ESTIMATOR = case(
    lambda state: state.get("kind"),
    {
        "regressor": _regressor({"kind": one_of("regressor")}),
        "classifier": record(
            {
                "kind": one_of("classifier"),
                "regressor": REGRESSOR,
                "params": record(CLASSIFIER_PARAMS),
                "classes": array("biufU", range(2, 2**31)),
                "cut": ordinary,
                "noise_rates": optional(sequence(number(0.0, 1.0), number(0.0, 1.0))),
                "calibration": sequence(slope, slope),
                "removed": array("b", "n"),
                "label_quality": array("f", "n", nan=True, low=0.0, high=1.0),
            },
            _classes_fit,
        ),
    },
)


def _width_fits(value: Any, where: str, sizes: Sizes) -> None:
    """The table makes as many features as the estimator takes; before that, not fewer."""
    state, d = value["features"], sizes["d"]
    if isinstance(state["gaps"], np.ndarray):
        width = len(TableFeatures.from_state(state).source_)
        if width != d:
            raise ValueError(f"the fit has {d} features, the table {width}")
    levels = sum(len(entry[1]) for entry in state["categories"])
    most = levels + (1 + len(DATE_PARTS)) * len(state["columns"])
    must_be(d <= most, where, f"of {most} features at most", d)


MODEL = record(
    {
        "target": text,
        "id": optional(text),
        "coverage": number(1e-9, 1.0 - 1e-9),
        "features": FEATURES,
        "estimator": ESTIMATOR,
    },
    _width_fits,
)

# --- files ------------------------------------------------------------------------------


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
    >>> from activehuber.persistence.model_files import Model
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
    state = {
        "target": model.target,
        "id": model.id_column,
        "coverage": float(model.coverage),
        "features": model.features.state(),
        "estimator": _estimator_state(model.estimator),
    }
    return state_bytes(FORMAT, state, MODEL)


def state_bytes(kind: str, state: dict[str, Any], rule: Rule) -> bytes:
    """A model file of some kind; `state` holds plain values and arrays that keep the rule."""
    import activehuber

    try:
        rule(state, "model", {})
    except ValueError as error:
        raise TableError(f"the model cannot be saved: {first_line(error)}") from None
    head = (kind, VERSION, activehuber.__version__)
    return pack({**dict(zip(HEAD, head, strict=True)), **state})


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
    >>> from activehuber.persistence.model_files import Model, save_model
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
    >>> from activehuber.persistence.model_files import Model, load_model, save_model
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> pipeline = audit(X, np.sin(X.ravel())).model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.skops"
    ...     save_model(Model(pipeline, target="y", id_column=None, coverage=0.9), path)
    ...     again = load_model(path)
    >>> bool(np.allclose(again.pipeline.predict(X), pipeline.predict(X)))
    True
    """
    state = read_state(path, FORMAT, MODEL)
    try:
        pipeline = Pipeline(
            [
                ("features", TableFeatures.from_state(state["features"])),
                ("estimator", _estimator_of(state["estimator"])),
            ]
        )
    except (TypeError, ValueError, ArithmeticError) as error:
        raise TableError(f"{Path(path).name} is damaged: {first_line(error)}") from None
    return Model(pipeline, state["target"], state["id"], float(state["coverage"]))


def read_state(path: str | Path, kind: str, rule: Rule) -> dict[str, Any]:
    """The plain values of a model file of some kind; any other file is refused, never run."""
    path = Path(path)

    def check(state: Any) -> None:
        _check_head(state, kind, path.name)
        rule({k: v for k, v in state.items() if k not in HEAD}, "model", {})

    return unpack(path, check)


def _check_head(state: Any, kind: str, name: str) -> None:
    found = state.get("format") if isinstance(state, dict) else None
    if found != kind:
        known = isinstance(found, str) and found in COMMANDS
        use = f"; it is one for {COMMANDS[str(found)]}" if known else ""
        raise TableError(f"{name} is no model for {COMMANDS[kind]}{use}")
    version = state.get("version")
    if type(version) is not int or version != VERSION:
        raise TableError(
            f"{name} has format {shown(version)}, but this version of activehuber reads "
            f"{VERSION}; it was written by activehuber {shown(state.get('activehuber'))}: use "
            "that, or make the model again"
        )


# --- estimators, taken apart and put together -------------------------------------------


def _estimator_state(model: Any) -> dict[str, Any]:
    if isinstance(model, HLClassifier):
        calibration: Calibration = model._calibration
        rates = model.noise_rates_
        return {
            "kind": "classifier",
            "params": _params_state(model, model.estimator_.result_.settings),
            "classes": _without_objects(model.classes_),
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
    model, inner = HLClassifier(**_params_of(state["params"])), regressor_of(state["regressor"])
    model.classes_, model.estimator_ = state["classes"], inner
    rates = state["noise_rates"]
    model.noise_rates_ = None if rates is None else (float(rates[0]), float(rates[1]))
    model._take_attributes()
    model.removed_, model.label_quality_ = state["removed"], state["label_quality"]
    model.cut_ = float(state["cut"])
    model._calibration = Calibration(*map(float, state["calibration"]))
    model.n_features_in_ = inner.n_features_in_
    return model


def regressor_state(model: HLRegressor) -> dict[str, Any]:
    """A fitted model as plain values and arrays."""
    if model.X_fit_ is None:
        raise TableError("a model with a precomputed kernel cannot be saved")
    data, evidence = model.result_.data, model.result_.evidence
    y, weights, trusted = data.y, data.weights, data.trusted
    params = _params_state(model, model.result_.settings)
    # As the fit used them: what "scale" and "loo" stood for is not worked out again.
    params["alpha"] = float(model.result_.settings.alpha)
    if not isinstance(params["random_state"], int):
        params["random_state"] = None  # a generator has moved on: it says nothing of this fit
    gammas = [view.kernel.gamma for view in model.result_.settings.views]
    if params["views"] is None:
        params["gamma"] = gammas[0]
    else:
        for view, gamma in zip(params["views"], gammas, strict=True):
            view["gamma"] = gamma
    approximated = model.result_.settings.approximation is not None
    return {
        "params": params,
        # The rows of an approximated fit are where they are; its basis is all that is needed.
        "X": None if approximated else model.X_fit_,
        "n_features": int(model.n_features_in_),
        "basis": _basis_state(model.result_.targets[0].basis),
        "y": y,
        "weights": weights,
        "trusted": np.array(trusted),
        "several": bool(data.several_targets),
        "fitted": [
            _fitted_state(fitted, found)
            for fitted, found in zip(model.result_.targets, evidence, strict=True)
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


def _basis_of(states: list[Any], settings: Settings) -> Basis:
    functions: list[Any] = []
    for state, view in zip(states, settings.views, strict=True):
        if "landmarks" in state:
            functions.append(Landmarks(view.kernel, state["landmarks"]))
        elif "frequencies" in state:
            functions.append(Waves(state["frequencies"]))
        else:
            functions.append(Columns(state["centre"], state["normalised"]))
    return Basis(tuple(view.columns for view in settings.views), tuple(functions))


def _fitted_state(fitted: Fitted, evidence: LabelEvidence) -> dict[str, Any]:
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
    """The inverse of `regressor_state`, for a state that keeps its rule."""
    model = HLRegressor(**_params_of(state["params"]))
    model._check_parameters()
    n, model.n_features_in_ = len(state["y"]), state["n_features"]
    X = LostRows(n, model.n_features_in_) if state["X"] is None else state["X"]
    data = Data(X, state["y"], state["weights"], state["trusted"], state["several"])
    settings = model._resolve(X, data)
    basis = None if state["basis"] is None else _basis_of(state["basis"], settings)
    fitted = [replace(_fitted_of(item), basis=basis) for item in state["fitted"]]
    model._assign(settings, data, fitted)
    return model


def _fitted_of(item: dict[str, Any]) -> Fitted:
    certificate = Certificate(**{key: float(v) for key, v in item["certificate"].items()})
    return Fitted(
        **{**item, "certificate": certificate, "evidence": LabelEvidence(**item["evidence"])}
    )


def _params_state(model: Any, settings: Settings) -> dict[str, Any]:
    """Parameters as plain values; views as dicts of theirs, with the columns that they took."""
    params = _plain_params(model.get_params(deep=False))
    if params["views"] is not None:
        params["views"] = [
            {**_plain_params(view.get_params(deep=False)), "columns": known.columns}
            for view, known in zip(params["views"], settings.views, strict=True)
        ]
    return params


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
    views = state["views"]
    return {**state, "views": views and [View(**view) for view in views]}


def _without_objects(values: np.ndarray) -> np.ndarray:
    """Classes as numbers or words."""
    return np.array(values.tolist()) if values.dtype.kind == "O" else values
