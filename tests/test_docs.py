"""The pages say what is so: their code runs, and nothing of the house is left out."""

import contextlib
import importlib
import io
import re
import warnings
from collections import defaultdict
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
from sklearn import (
    calibration,
    compose,
    ensemble,
    feature_selection,
    inspection,
    linear_model,
    model_selection,
    multiclass,
    multioutput,
    preprocessing,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import HalvingGridSearchCV, KFold
from sklearn.pipeline import make_pipeline

import activehuber
from activehuber import HLClassifier, HLRegressor, LabelledKFold
from tests.test_house import FLOW, SOURCE

DOCS = Path(__file__).parent.parent / "docs"
# Code, and what it prints if a block of output follows.
CODE = re.compile(r"```python\n(.*?)```\n(?:\n```\n(.*?)```)?", re.S)
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if CODE.search(path.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_code_of_a_page_prints_what_stands_below_it(page):
    names = {}
    for code, printed in CODE.findall(page.read_text()):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, page.name, "exec"), names)
        assert out.getvalue() == printed


# What a table says of a rule, not of a run: cuts and quantiles that are settings.
SETTINGS = {"1.345", "0.9", "3.5"}
FIGURE = re.compile(r"\d+\.\d+")
COMMAND = re.compile(r"\b((?:benchmarks|experiments)[./]\w+)")


def committed_runs():
    """Figures of every run that is kept, by the command that made it."""
    root, runs = DOCS.parent, defaultdict(list)
    for path in root.glob("benchmarks/results/*.md"):
        for run in re.split(r"^##? ", path.read_text(), flags=re.M)[1:]:
            found = COMMAND.search(run).group(1).replace("/", ".")
            runs[found].append(set(FIGURE.findall(run)))
    for path in root.glob("experiments/*/results/*.md"):
        runs[f"experiments.{path.parts[-3]}"].append(set(FIGURE.findall(path.read_text())))
    return runs


def measured(page):
    """Lines of tables with their figures, and the command that is named last before them."""
    command = None
    for line in page.read_text().splitlines():
        command = (COMMAND.findall(line) or [command])[-1]
        figures = set(FIGURE.findall(line)) - SETTINGS
        if line.startswith("|") and figures:
            yield line, figures, command and command.replace("/", ".")


def is_one_of(figure, known):
    """Whether it is there as it stands, or with more digits."""
    half = 0.500001 * 10.0 ** -len(figure.partition(".")[2])
    return any(abs(float(figure) - float(each)) <= half for each in known)


@pytest.mark.parametrize(
    "page", [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.stem
)
def test_figures_in_tables_are_those_of_one_committed_run_of_the_command_named(page):
    """No page vouches for another: the README is looked at as they are."""
    runs = committed_runs()
    unknown = [
        f"{command}: {line}"
        for line, figures, command in measured(page)
        if not any(all(is_one_of(each, run) for each in figures) for run in runs[command])
    ]
    assert unknown == []


def test_there_are_figures_to_look_at():
    assert sum(len(list(measured(page))) for page in DOCS.rglob("*.md")) > 50
    assert len(list(measured(DOCS.parent / "README.md"))) > 30


def test_every_folder_has_its_line():
    text = (DOCS / "architecture.md").read_text()
    assert [name for name in FLOW if not re.search(rf"\b{name}\b", text)] == []


def test_the_mathematics_are_where_their_page_says():
    text = (DOCS / "mathematics.md").read_text()
    named = set(re.findall(r"`((?:activehuber|experiments)(?:\.\w+)+)`", text))
    rows = text.split("## Where it lives")[1]
    named |= {f"activehuber.{name}" for name in re.findall(r"`(\w+\.(?!py)\w+)`", rows)}
    assert len(named) > 35
    for name in named:
        resolve_name(name)
    tests = re.findall(r"`(\w+/test_\w+\.py)`", rows)
    assert len(tests) > 20
    assert [name for name in tests if not (Path(__file__).parent / name).is_file()] == []


def test_the_ways_through_the_house_are_there_and_short():
    text = (DOCS / "architecture.md").read_text().split("## How to add")[0]
    ways = re.split(r"^### ", text.split("## Three ways through the house")[1], flags=re.M)[1:]
    lengths = []
    for way in ways:
        named = re.findall(r"^\| \d+\. `(\S+\.py)`", way, re.M)
        assert [name for name in named if not (SOURCE / name).is_file()] == []
        lengths.append(len(named))
    assert len(lengths) == 3
    assert all(0 < n <= most for n, most in zip(lengths, (9, 12, 16), strict=True))


def test_every_public_name_is_in_the_reference():
    listed = referenced()
    public = {f"activehuber.{name}" for name in activehuber.__all__ if name != "__version__"}
    assert public <= set(listed)
    for name in listed:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def referenced():
    """Full names of all that the reference lists."""
    found, module = [], ""
    for line in (DOCS / "api" / "index.md").read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            found.append(f"{module}.{line.strip()}")
    return found


def test_the_page_of_commands_has_every_option():
    typer = pytest.importorskip("typer")
    from activehuber.cli.app import app

    sections = re.split(r"^## activehuber ", (DOCS / "commands.md").read_text(), flags=re.M)[1:]
    told = {
        re.match(r"[a-z ]+", text).group().strip(): set(re.findall(r"`(--[a-z-]+)", text))
        for text in sections
    }
    assert told == dict(commands(typer.main.get_command(app)))


def commands(group, before=""):
    """Name and options of every command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            options = {option for each in command.params for option in each.opts}
            yield before + name, {option for option in options if option.startswith("--")}


# --- which meta-estimators take NaN in y ---------------------------------------------------


def data():
    """Rows, labels, two targets, classes by number and by name; a quarter is missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    numbers = (X[:, 0] > 0).astype(float)
    words = np.where(X[:, 0] > 0, "a", "b").astype(object)
    y[45:], numbers[45:], words[45:] = np.nan, np.nan, None
    return X, y, np.column_stack([y, y]), numbers, words


X, Y1, Y2, NUMBERS, WORDS = data()
GRID = {"alpha": [1e-3, 1e-2]}


def model():
    return HLRegressor()


def folds():
    return LabelledKFold(3)


def searched(search, **params):
    return search(model(), GRID, cv=folds(), **params).fit(X, Y1).predict(X)


def selected(selector):
    return selector.fit(X, Y1).transform(X)


WORKING = {
    "Pipeline": lambda: make_pipeline(preprocessing.StandardScaler(), model()).fit(X, Y1),
    "ColumnTransformer": lambda: make_pipeline(
        compose.ColumnTransformer([("scaled", preprocessing.StandardScaler(), [0])]), model()
    ).fit(X, Y1),
    "GridSearchCV": lambda: searched(
        model_selection.GridSearchCV, scoring="neg_mean_absolute_error", error_score="raise"
    ),
    "RandomizedSearchCV": lambda: searched(model_selection.RandomizedSearchCV, n_iter=1),
    "HalvingGridSearchCV": lambda: searched(HalvingGridSearchCV, min_resources=30),
    "cross_val_score": lambda: model_selection.cross_val_score(model(), X, Y1, cv=folds()),
    "cross_validate": lambda: model_selection.cross_validate(model(), X, Y1, cv=folds())[
        "test_score"
    ],
    "validation_curve": lambda: model_selection.validation_curve(
        model(), X, Y1, cv=folds(), param_name="alpha", param_range=GRID["alpha"]
    )[1],
    "learning_curve": lambda: model_selection.learning_curve(
        model(), X, Y1, cv=folds(), train_sizes=[0.5, 1.0]
    )[2],
    "cross_val_predict": lambda: model_selection.cross_val_predict(model(), X, Y1, cv=KFold(3)),
    "VotingRegressor": lambda: ensemble.VotingRegressor([("one", model())]).fit(X, Y1),
    "StackingRegressor": lambda: ensemble.StackingRegressor(
        [("one", model())], final_estimator=model(), cv=KFold(3)
    ).fit(X, Y1),
    "SequentialFeatureSelector": lambda: selected(
        feature_selection.SequentialFeatureSelector(model(), n_features_to_select=1, cv=folds())
    ),
    "SelectFromModel": lambda: selected(
        feature_selection.SelectFromModel(model(), importance_getter=lambda fit: np.ones(3))
    ),
    "permutation_importance": lambda: (
        inspection.permutation_importance(model().fit(X, Y1), X, Y1, n_repeats=2).importances
    ),
    "partial_dependence": lambda: inspection.partial_dependence(model().fit(X, Y1), X, [0])[
        "average"
    ],
    "train_test_split": lambda: model_selection.train_test_split(X, Y1)[0],
}


def classifier():
    return HLClassifier()


REFUSING = {
    "TransformedTargetRegressor": lambda: compose.TransformedTargetRegressor(
        model(), transformer=preprocessing.StandardScaler()
    ).fit(X, Y1),
    "MultiOutputRegressor": lambda: multioutput.MultiOutputRegressor(model()).fit(X, Y2),
    "RegressorChain": lambda: multioutput.RegressorChain(model()).fit(X, Y2),
    "BaggingRegressor": lambda: ensemble.BaggingRegressor(model()).fit(X, Y1),
    "AdaBoostRegressor": lambda: ensemble.AdaBoostRegressor(model()).fit(X, Y1),
    "RANSACRegressor": lambda: linear_model.RANSACRegressor(model()).fit(X, Y1),
    "RFECV": lambda: feature_selection.RFECV(model(), cv=folds()).fit(X, Y1),
    "SelectKBest": lambda: feature_selection.SelectKBest(
        feature_selection.f_regression, k=1
    ).fit(X, Y1),
    "MultiOutputClassifier": lambda: multioutput.MultiOutputClassifier(classifier()).fit(
        X, np.column_stack([NUMBERS, NUMBERS])
    ),
}
REFUSING_CLASSES = {
    "VotingClassifier": lambda: ensemble.VotingClassifier([("one", classifier())]),
    "BaggingClassifier": lambda: ensemble.BaggingClassifier(classifier()),
    "StackingClassifier": lambda: ensemble.StackingClassifier(
        [("one", classifier())], cv=KFold(3)
    ),
    "OneVsRestClassifier": lambda: multiclass.OneVsRestClassifier(classifier()),
    "CalibratedClassifierCV": lambda: calibration.CalibratedClassifierCV(
        classifier(), cv=KFold(3)
    ),
    "FixedThresholdClassifier": lambda: model_selection.FixedThresholdClassifier(classifier()),
    "TunedThresholdClassifierCV": lambda: model_selection.TunedThresholdClassifierCV(
        classifier(), cv=folds()
    ),
}


def told(heading):
    """Names in the first column of the table below a heading."""
    page = (DOCS / "guide" / "scikit_learn.md").read_text()
    table = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_page_tells_of_all_that_is_tried_here():
    assert told("With NaN in y: these work") == set(WORKING)
    assert told("With NaN in y: these refuse") == {*REFUSING, *REFUSING_CLASSES}


@pytest.mark.parametrize("name", WORKING)
def test_it_takes_missing_labels(name):
    found = WORKING[name]()
    values = found.predict(X) if hasattr(found, "predict") else found
    assert np.all(np.isfinite(values))


@contextlib.contextmanager
def refused(error):
    """An error of scikit-learn's, whatever its words: our code was not asked."""
    with pytest.raises(error) as caught:
        yield
    ours = Path(activehuber.__file__).parent
    assert not any(ours in entry.path.parents for entry in caught.traceback)


@pytest.mark.parametrize("name", REFUSING)
def test_it_refuses_missing_labels(name):
    with refused(ValueError):
        REFUSING[name]()


@pytest.mark.parametrize("name", REFUSING_CLASSES)
def test_it_refuses_missing_classes(name):
    with refused(TypeError):
        REFUSING_CLASSES[name]().fit(X, WORDS)
    with warnings.catch_warnings():
        # scikit-learn casts NaN to an integer before it looks.
        warnings.filterwarnings("ignore", "invalid value encountered in cast", RuntimeWarning)
        with refused(ValueError):
            REFUSING_CLASSES[name]().fit(X, NUMBERS)
