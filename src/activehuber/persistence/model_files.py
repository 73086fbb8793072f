"""A model in a file: dicts, lists, text, numbers and arrays, and nothing else.

A fitted model is taken apart into plain values and put together again by this module, so the
file names no class of ours and none of anyone else. What such values must be is said once, in
the rules below: they are checked when a file is written, when its arrays have told their shapes
but have not been read, and when they have been.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from activehuber.data.encoding import (
    CATEGORY,
    DATE,
    DATE_PARTS,
    FLAG,
    NUMBER,
    Encoding,
    TableFeatures,
)
from activehuber.data.parsing import DATE_LAYOUTS
from activehuber.data.rows import LostRows
from activehuber.estimators.classifier import HLClassifier
from activehuber.estimators.parameters import check_parameters, resolved
from activehuber.estimators.regressor import HLRegressor, set_fitted
from activehuber.estimators.target_scale import (
    LOG,
    NONE,
    YEO_JOHNSON,
    ScaledRegressor,
    TargetScale,
)
from activehuber.fitting.result import Fitted, LabelEvidence
from activehuber.fitting.settings import Data, Settings
from activehuber.fitting.validation import ALGORITHM_NAMES, THRESHOLD_NAMES, check_weights
from activehuber.graphs.laplacians import GRAPH_NAMES
from activehuber.kernels.feature_maps import (
    APPROXIMATION_NAMES,
    Basis,
    Columns,
    FourierFeatures,
    Landmarks,
)
from activehuber.kernels.kernel import KERNEL_NAMES
from activehuber.labels.error_scale import ErrorScale
from activehuber.labels.noise_rates import SLOPES, Calibration
from activehuber.persistence.archive import pack, unpack
from activehuber.persistence.schema import (
    Rule,
    Sizes,
    array,
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
from activehuber.runtime.files import write_file
from activehuber.runtime.messages import TableError, first_line
from activehuber.views import View

FORMAT, CROWD_FORMAT, VERSION = "activehuber model", "activehuber crowd model", 9
COMMANDS = {FORMAT: "activehuber predict", CROWD_FORMAT: "activehuber crowd count"}
# What every file says of itself.
HEAD = ("format", "version", "activehuber")

# --- what the values must be ------------------------------------------------------------
#
# Sizes: n rows, d features, q targets, m views, v features of a view, p functions of a basis;
# of a table c columns in use, k of them numbers, a categories, t dates.

# Numbers that can be added up without becoming infinite.
ordinary = number(-1e300, 1e300)
positive, not_negative = number(0.0, above=True), number(0.0)
anything = number(finite=False)
rate, slope = number(0.0, 1.0), number(*SLOPES)


def _numbers(size: int | str) -> Rule:
    """`Numbers` of columns."""
    each = array("f", size)
    rule = sequence(each, each, array("f", size, low=0.0))

    def check(value: Any, where: str, sizes: Sizes) -> None:
        """Over their scale they must be finite; what is learnt is far from that."""
        rule(value, where, sizes)
        fill, centre, scale = value
        if isinstance(scale, np.ndarray):
            used = scale > 0.0
            far = np.maximum(np.abs(fill), np.abs(centre))[used]
            if np.any(1e-15 * far > scale[used]):
                raise ValueError(f"{where} has scales that are far too small")

    return check


def _columns_fit(value: Any, where: str, sizes: Sizes) -> None:
    """There is as much of every kind as there are columns of it."""
    distinct(value["columns"], f"{where}.columns")
    for kind, size in ((NUMBER, "k"), (CATEGORY, "a"), (DATE, "t")):
        found = value["kinds"].count(kind)
        must_be(fits(size, found, sizes), where, f"of {sizes[size]} columns: {kind}", found)
    for place, each in enumerate(value["categories"]):
        distinct(each["levels"], f"{where}.categories[{place}].levels")


ENCODING = record(
    _columns_fit,
    columns=items(text, "c"),
    kinds=items(one_of(NUMBER, FLAG, CATEGORY, DATE), "c"),
    numbers=_numbers("k"),
    gaps=array("b", "k"),
    categories=items(record(levels=items(text), pooled=flag), "a"),
    dates=items(
        record(
            origin=whole(-(2**63) + 1, 2**63 - 1),  # the first of all is no date
            gaps=flag,
            layout=optional(one_of(*DATE_LAYOUTS)),
            parts=_numbers(len(DATE_PARTS)),
        ),
        "t",
    ),
    left_out=items(sequence(text, text)),
    sentences=items(text),
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
    columns=array("i", "v", low=0),
    gamma=either(positive, array("f", "v", low=0.0)),
    **KERNEL,
    name=optional(text),
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
    "noise_rates": either(nothing, one_of("estimate"), sequence(rate, rate)),
}


def _coefficients(value: Any, where: str, sizes: Sizes) -> None:
    """Of the functions of the basis, or of the kernels at the rows."""
    shape = ("p",) if "p" in sizes else ("n", "m")
    array("f", *shape, low=-1e300, high=1e300)(value, where, sizes)


SCALE = record(
    **dict.fromkeys(("sigma", "variance", "rounding", "usual_open"), not_negative),
    **dict.fromkeys(("middle", "centre"), ordinary),
    **dict.fromkeys(("lowest", "highest"), number(-1e3, 1e3)),
    exponent=number(-1.5, 1.5),
    spread=positive,
)
# Of a fit: three are in its evidence, the last is the same for all targets.
LEFT_OUT = ("scale", "quality", "judged", "basis")
FITTED = record(
    coefficients=_coefficients,
    intercept=ordinary,
    view_weights=array("f", "m", low=0.0, high=1e6),
    view_weights_residual=anything,
    threshold=anything,
    thresholds=array("f", range(1, 2**20), nan=True, inf=True),
    removed=array("b", "n"),
    residuals=array("f", "n", nan=True),
    certificate=record(**{each.name: anything for each in fields(Certificate)}),
    n_iter=whole(),
    n_labelled=whole(),
    evidence=record(
        scale=SCALE,
        loo_residuals=array("f", "n", nan=True, low=-1e300, high=1e300),
        loo_scales=array("f", "n", nan=True, low=0.0, high=1e300),
        label_quality=array("f", "n", nan=True, low=0.0, high=1.0),
        judged=array("b", "n"),
    ),
    **dict.fromkeys(LEFT_OUT, nothing),
)
# What the functions of each kind are made of, beside the kernel of their view.
FUNCTIONS: dict[type, dict[str, Rule]] = {
    Landmarks: {"rows": array("f", "w", "v")},
    FourierFeatures: {"frequencies": array("f", "v", "w")},
    Columns: {"centre": array("f", "v"), "normalised": flag},
}


def _kind_of_functions(state: Any, where: str = "basis") -> type:
    for kind, rules in FUNCTIONS.items():
        if isinstance(state, dict) and set(state) == set(rules):
            return kind
    raise ValueError(f"{where} must be functions of a known kind, got {shown(state)}")


def _basis(value: Any, where: str, sizes: Sizes) -> None:
    """Functions of the views, p in all, of as many features as these have."""
    must_be(isinstance(value, list) and len(value) == sizes["m"], where, "of all views", value)
    sizes["p"] = 0
    for place, state in enumerate(value):
        own, here = {"v": sizes[f"v{place}"]}, f"{where}[{place}]"
        kind = _kind_of_functions(state, here)
        record(**FUNCTIONS[kind])(state, here, own)
        # Of the columns themselves there are as many as features; a wave is two functions.
        sizes["p"] += own.get("w", own["v"]) * (2 if kind is FourierFeatures else 1)


def _fit_fits(value: Any, where: str, sizes: Sizes) -> None:
    """What cannot be said of one value alone."""
    must_be(min(sizes[s] for s in "nqdm") > 0, where, "of something", 0)
    must_be(value["several"] or sizes["q"] == 1, f"{where}.several", "true", value["several"])
    gamma, kind = value["params"]["gamma"], value["params"]["approximation"]
    known = value["params"]["views"] is not None or not isinstance(gamma, (str, list))
    must_be(known, f"{where}.params.gamma", "what it came to", gamma)
    exact = (kind is None, value["basis"] is None, value["X"] is not None)
    must_be(len(set(exact)) == 1, where, "one with rows or one with a basis", kind)
    if isinstance(value["y"], np.ndarray):
        weights = check_weights(value["weights"], value["y"])
        for place, each in enumerate(value["fitted"]):
            errors = each["evidence"]["loo_residuals"]
            if not np.any(~each["removed"] & ~np.isnan(errors) & (weights > 0.0)):
                raise ValueError(f"{where}.fitted[{place}] has no label in use")


REGRESSOR = record(
    _fit_fits,
    n_features=whole(1, size="d"),
    params=record(**PARAMS),
    X=optional(array("f", "n", "d")),
    basis=optional(_basis),
    y=array("f", "n", "q", nan=True),
    weights=array("f", "n", low=0.0),
    trusted=array("b", "n", "q"),
    several=flag,
    fitted=items(FITTED, "q"),
)


def _classes_fit(value: Any, where: str, sizes: Sizes) -> None:
    """As many targets as classes, but one for two of them."""
    classes, rates = value["classes"], value["noise_rates"]
    k, q = classes.shape[0], sizes["q"]
    must_be(k > 1 and q == (1 if k == 2 else k), f"{where}.classes", f"of {q} targets", classes)
    good = rates is None or (k == 2 and sum(rates) < 1.0)
    must_be(good, f"{where}.noise_rates", "two with a sum below 1", rates)
    if isinstance(classes, np.ndarray):
        distinct(classes.tolist(), f"{where}.classes")
        if classes.dtype.kind == "U":
            items(text)(classes.tolist(), f"{where}.classes", sizes)


CLASSIFIER = record(
    _classes_fit,
    params=record(**CLASSIFIER_PARAMS),
    classes=array("biufU", range(2, 2**31)),
    cut=ordinary,
    noise_rates=optional(sequence(rate, rate)),
    calibration=record(above=slope, below=slope),
    removed=array("b", "n"),
    label_quality=array("f", "n", nan=True, low=0.0, high=1.0),
    judged=array("b", "n"),
)


def _model_fits(value: Any, where: str, sizes: Sizes) -> None:
    """The table makes as many features as the regressor takes; before that, not fewer."""
    state, d = value["features"], sizes["d"]
    if isinstance(state["gaps"], np.ndarray):
        width = sum(map(len, Encoding.of(state).names()))
        if width != d:
            raise ValueError(f"the fit has {d} features, the table {width}")
    levels = sum(len(each["levels"]) for each in state["categories"])
    most = levels + (1 + len(DATE_PARTS)) * len(state["columns"])
    must_be(d <= most, where, f"of {most} features at most", d)
    both = value["classifier"] is not None and value["target_scale"] is not None
    must_be(not both, f"{where}.target_scale", "none for classes", value["target_scale"])
    if value["classifier"] is not None:
        several = value["classifier"]["classes"].shape[0] > 2
        must_be(value["regressor"]["several"] == several, where, "of several classes", several)


TARGET_SCALE = record(
    kind=one_of(NONE, LOG, YEO_JOHNSON),
    exponent=number(0.0, 2.0),
    unit=number(1e-300, 1e300),
    not_negative=flag,
)
MODEL = record(
    _model_fits,
    target=text,
    id=optional(text),
    coverage=number(1e-9, 1.0 - 1e-9),
    features=ENCODING,
    regressor=REGRESSOR,
    classifier=optional(CLASSIFIER),
    target_scale=optional(TARGET_SCALE),
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
        "features": asdict(model.features.encoding_),
        **_estimator_state(model.estimator),
    }
    return state_bytes(FORMAT, state, MODEL)


def state_bytes(kind: str, state: dict[str, Any], rule: Rule) -> bytes:
    """A model file of some kind; `state` holds plain values and arrays that keep the rule."""
    import activehuber

    try:
        rule(state, "model", {})
    except ValueError as error:
        raise TableError(f"the model cannot be saved: {first_line(error)}") from None
    head = {"format": kind, "version": VERSION, "activehuber": activehuber.__version__}
    return pack({**head, **state})


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
        features = TableFeatures().use(Encoding.of(state["features"]))
        pipeline = Pipeline([("features", features), ("estimator", _estimator_of(state))])
    except (TypeError, ValueError, ArithmeticError) as error:
        raise TableError(f"{Path(path).name} is damaged: {first_line(error)}") from None
    return Model(pipeline, state["target"], state["id"], float(state["coverage"]))


def read_state(path: str | Path, kind: str, rule: Rule) -> dict[str, Any]:
    """The plain values of a model file of some kind; any other file is refused, never run."""
    path = Path(path)

    def check(state: Any) -> None:
        found = state.get("format") if isinstance(state, dict) else None
        if found != kind:
            known = isinstance(found, str) and found in COMMANDS
            use = f"; it is one for {COMMANDS[str(found)]}" if known else ""
            raise TableError(f"{path.name} is no model for {COMMANDS[kind]}{use}")
        version = state.get("version")
        if type(version) is not int or version != VERSION:
            raise TableError(
                f"{path.name} has format {shown(version)}, but this version of activehuber "
                f"reads {VERSION}; it was written by activehuber "
                f"{shown(state.get('activehuber'))}: use that, or make the model again"
            )
        rule({k: v for k, v in state.items() if k not in HEAD}, "model", {})

    return unpack(path, check)


# --- estimators, taken apart and put together -------------------------------------------

# What a classifier has learnt besides its regressor.
CLASSIFIER_STATE = ("classes", "cut", "noise_rates", "removed", "label_quality", "judged")


def _estimator_state(model: Any) -> dict[str, Any]:
    scale, classifier = None, None
    if isinstance(model, ScaledRegressor):
        model, scale = model.regressor_, asdict(model.scale)
    if isinstance(model, HLClassifier):
        classes = model.classes_
        classifier = {name: getattr(model, f"{name}_") for name in CLASSIFIER_STATE} | {
            "params": _params_state(model, model.estimator_.result_.settings),
            # As numbers or words.
            "classes": np.array(classes.tolist()) if classes.dtype.kind == "O" else classes,
            "calibration": asdict(model.calibration_),
        }
        model = model.estimator_
    if not isinstance(model, HLRegressor):
        raise TableError(
            f"a {type(model).__name__} cannot be saved; only HLRegressor and HLClassifier can"
        )
    inner = regressor_state(model)
    return {"regressor": inner, "classifier": classifier, "target_scale": scale}


def _estimator_of(model_state: dict[str, Any]) -> Any:
    inner, state = regressor_of(model_state["regressor"]), model_state["classifier"]
    scale = model_state["target_scale"]
    if scale is not None:
        return ScaledRegressor.around(inner, TargetScale(**scale))
    if state is None:
        return inner
    model = HLClassifier(**_params_of(state["params"]))
    for name in CLASSIFIER_STATE:
        setattr(model, f"{name}_", state[name])
    if model.noise_rates_ is not None:
        model.noise_rates_ = float(model.noise_rates_[0]), float(model.noise_rates_[1])
    model.calibration_, model.estimator_ = Calibration(**state["calibration"]), inner
    model.n_features_in_ = inner.n_features_in_
    return model


def regressor_state(model: HLRegressor) -> dict[str, Any]:
    """A fitted model as plain values and arrays."""
    if model.X_fit_ is None:
        raise TableError("a model with a precomputed kernel cannot be saved")
    data, settings = model.result_.data, model.result_.settings
    params, basis = _params_state(model, settings), model.result_.targets[0].basis
    functions = [
        {key: getattr(each, key) for key in FUNCTIONS[type(each)]}
        for each in (() if basis is None else basis.functions)
    ]
    # As the fit used them: what "scale" and "loo" stood for is not worked out again.
    params["alpha"] = float(settings.alpha)
    if not isinstance(params["random_state"], (int, np.integer)):
        params["random_state"] = None  # a generator has moved on: it says nothing of this fit
    for own, view in zip(params["views"] or [params], settings.views, strict=True):
        own["gamma"] = view.kernel.gamma
    left_out: dict[str, Any] = dict.fromkeys(LEFT_OUT)
    return {
        "params": params,
        # The rows of an approximated fit are where they are; its basis is all that is needed.
        "X": model.X_fit_ if settings.approximation is None else None,
        "n_features": int(model.n_features_in_),
        "basis": functions or None,
        "y": data.y,
        "weights": data.weights,
        "trusted": np.array(data.trusted),
        "several": bool(data.several_targets),
        "fitted": [
            asdict(replace(fitted, evidence=found, **left_out))
            for fitted, found in zip(model.result_.targets, model.result_.evidence, strict=True)
        ],
    }


def _basis_of(states: list[Any], settings: Settings) -> Basis:
    functions: list[Any] = []
    for state, view in zip(states, settings.views, strict=True):
        kind = _kind_of_functions(state)
        kernel = {"kernel": view.kernel} if kind is Landmarks else {}
        functions.append(kind(**kernel, **state))
    return Basis(tuple(view.columns for view in settings.views), tuple(functions))


def regressor_of(state: dict[str, Any]) -> HLRegressor:
    """The inverse of `regressor_state`, for a state that keeps its rule."""
    model = HLRegressor(**_params_of(state["params"]))
    check_parameters(model)
    n, model.n_features_in_ = len(state["y"]), state["n_features"]
    X = LostRows(n, model.n_features_in_) if state["X"] is None else state["X"]
    data = Data(X, state["y"], state["weights"], state["trusted"], state["several"])
    settings = resolved(model, X, data)
    basis = None if state["basis"] is None else _basis_of(state["basis"], settings)
    fitted = []
    for item in state["fitted"]:
        certificate, known = Certificate(**item["certificate"]), item["evidence"]
        evidence = LabelEvidence(**known | {"scale": ErrorScale(**known["scale"])})
        own = {"certificate": certificate, "evidence": evidence, "basis": basis}
        fitted.append(Fitted(**item | own))
    set_fitted(model, settings, data, fitted)
    return model


def _params_state(model: Any, settings: Settings) -> dict[str, Any]:
    """Parameters as plain values; views as dicts of theirs, with the columns that they took."""
    params = model.get_params(deep=False)
    if params["views"] is not None:
        params["views"] = [
            view.get_params(deep=False) | {"columns": known.columns}
            for view, known in zip(params["views"], settings.views, strict=True)
        ]
    return params


def _params_of(state: dict[str, Any]) -> dict[str, Any]:
    views = state["views"]
    return {**state, "views": views and [View(**view) for view in views]}
