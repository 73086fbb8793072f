"""From a table to verdicts: the same numbers as the library, in words that are true."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, clone

from activehuber import HLClassifier, HLRegressor, View
from activehuber.audit import audit, choice, summary, threshold_path
from activehuber.audit.outputs import table_csv
from activehuber.data.datasets import make_corrupted_diabetes
from activehuber.operators.dense import DenseGram
from activehuber.runtime.messages import TableError


class Quick(BaseEstimator):
    """Chooses nothing: one fit with fixed parameters, in the shape of HLRegressorCV."""

    def __init__(self, classify=False, views=None, alpha=1e-3):
        self.classify = classify
        self.views = views
        self.alpha = alpha

    def fit(self, X, y, sample_weight=None, trusted=None, groups=None):
        kind = HLClassifier if self.classify else HLRegressor
        self.best_params_ = {"kernel": "laplacian", "alpha": self.alpha}
        model = kind(**self.best_params_, views=self.views)
        self.best_estimator_ = model.fit(X, y, sample_weight, trusted, groups)
        return self


def make_table(rng, n=120, corrupted=(5, 17, 60)):
    """Numbers, words, dates and gaps; labels 5, 17 and 60 are far off, the last 20 missing."""
    size, town = rng.normal(size=n), rng.choice(["north", "south"], n)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    y = 3.0 * size + 2.0 * (town == "north") + 0.2 * rng.normal(size=n)
    y[list(corrupted)] += 20.0
    y[-20:] = np.nan
    X = pd.DataFrame({"size": size, "town": town, "day": day, "noise": rng.normal(size=n)})
    X.loc[3, "noise"] = np.nan
    return X, y


@pytest.fixture
def table(rng):
    return make_table(rng)


@pytest.fixture
def found(table):
    return audit(*table, estimator=Quick())


def test_planted_labels_come_first(found):
    assert sorted(found.labels["row"][:3]) == [6, 18, 61]
    assert (found.labels["verdict"][:3] == "flagged").all()
    assert list(found.labels.columns) == [
        "row", "given", "expected", "lower", "upper", "residual", "left_at", "quality",
        "verdict", "reason",
    ]  # fmt: skip


def test_same_numbers_as_the_library_call(table, found):
    X, y = table
    features = found.model.named_steps["features"].transform(X)
    model = HLRegressor(kernel="laplacian", alpha=1e-3).fit(features, y)
    rows = found.labels["row"].to_numpy() - 1
    np.testing.assert_array_equal(found.labels["quality"], model.label_quality_[rows])
    np.testing.assert_array_equal(
        found.labels["residual"], model.loo_residuals_[rows] / model.scale_
    )
    np.testing.assert_array_equal(
        found.labels["expected"], y[rows] - model.loo_residuals_[rows]
    )
    np.testing.assert_array_equal(found.labels["verdict"] == "flagged", model.removed_[rows])
    np.testing.assert_array_equal(
        found.predictions["prediction"], model.predict(features)[-20:]
    )
    assert found.predictions["row"].tolist() == list(range(101, 121))


def test_order_is_worst_first(found):
    quality = found.labels["quality"].to_numpy()
    assert np.all(np.diff(quality) >= 0)


def test_intervals_hold_fitted_values_and_predictions(found):
    for frame, name in ((found.labels, "expected"), (found.predictions, "prediction")):
        assert (frame["lower"] <= frame[name]).all() and (frame[name] <= frame["upper"]).all()


def test_left_at_is_where_the_label_left_the_free_set(table, found):
    X, y = table
    features = found.model.named_steps["features"].transform(X)
    model = found.model.named_steps["estimator"]
    gamma = model.result_.settings.views[0].kernel.gamma
    labels = found.labels.set_index("row")
    left = labels["left_at"].dropna()
    assert {6, 18, 61} <= set(left.index)
    for row, threshold in left.items():
        residual = {}
        for share in (1.001, 0.999):
            refit = HLRegressor(
                kernel="laplacian", gamma=gamma, alpha=1e-3, threshold=threshold * share
            ).fit(features, y)
            residual[share] = abs(refit.residuals_[row - 1]) / (threshold * share)
        assert residual[1.001] <= 1.0 < residual[0.999]


def test_reason_is_true(found):
    worst = found.labels.iloc[0]
    line = found.report.lines[0]
    expected = worst["given"] - worst["residual"] * found.summary.scale
    given = [neighbour[1] for neighbour in line["neighbours"]]
    half = (worst["upper"] - worst["lower"]) / 2.0
    number = r"(-?[0-9.]+)"
    told = re.fullmatch(
        f"given {number}, expected {number} ± {number}; "
        f"5 most similar rows have {number} to {number}",
        worst["reason"],
    )
    said = [worst["given"], expected, half, min(given), max(given)]
    assert [float(each) for each in told.groups()] == pytest.approx(said, abs=0.051)
    assert line["reason"] == worst["reason"]


def test_reason_names_what_is_missing_in_the_row(table):
    X, y = table
    X.loc[5, ["size", "town"]] = np.nan, None
    X.loc[17, "day"] = pd.NaT
    X.loc[60, "noise"] = np.inf
    reason = audit(X, y, estimator=Quick()).labels.set_index("row")["reason"]
    assert reason[6].endswith("; size, town are missing here")
    assert reason[18].endswith("; day is missing here")
    assert reason[61].endswith("; noise is missing here")
    assert reason[4].endswith("; noise is missing here")
    assert reason.str.contains("missing").sum() == 4


def test_it_is_told_in_three_lines(found):
    told = repr(found).splitlines()
    assert told[0] == "Audit of table: 120 rows, target target"
    flagged = (found.labels["verdict"] == "flagged").sum()
    assert told[1] == f"{flagged} of 100 labels flagged, 20 without a label predicted"
    worst = found.labels.iloc[0]
    assert told[2] == f"worst label: row {worst['row']}, flagged: {worst['reason']}"
    page = found._repr_html_()
    assert worst["verdict"] in page and len(page) < 10_000


def test_predict_is_that_of_the_model_with_intervals(table, found):
    X, _ = table
    new = X.iloc[[100, 7, 119]]
    got = found.predict(new)
    assert got.index.tolist() == [100, 7, 119]
    features, estimator = found.model.named_steps.values()
    np.testing.assert_array_equal(got["prediction"], found.model.predict(new))
    for coverage in (0.9, 0.5):
        ends = found.predict(new, coverage=coverage)[["lower", "upper"]]
        wanted = estimator.predict_interval(features.transform(new), coverage=coverage)
        np.testing.assert_array_equal(ends, wanted)
    other = found.predict(pl.from_pandas(new))
    assert other["lower"].to_list() == got["lower"].tolist()
    with pytest.raises(TableError, match="coverage"):
        found.predict(new, coverage=90)


def test_a_flagged_label_is_below_a_half_in_the_file(table, tmp_path):
    X, y = table

    class Tight(Quick):
        def fit(self, X, y, sample_weight=None, trusted=None):
            self.best_params_ = {"threshold": "refine", "threshold_step": 2.0, "alpha": 1e-2}
            self.best_estimator_ = HLRegressor(**self.best_params_).fit(X, y)
            return self

    found = audit(X, y, estimator=Tight())
    found.to_csv(tmp_path / "a.csv")
    again = pd.read_csv(tmp_path / "a.csv")
    removed = again["verdict"] == "flagged"
    # Refinements go by other residuals: some of what they drop lies inside its cut.
    assert (again["quality"][removed] == 0.499).any()
    assert (again["quality"] < 0.5).tolist() == removed.tolist()


def test_similar_rows_are_the_nearest_in_use(table, found):
    X, y = table
    features = found.model.named_steps["features"].transform(X)
    model = found.model.named_steps["estimator"]
    in_use = np.flatnonzero(~np.isnan(y) & ~model.removed_)
    gamma = model.result_.settings.views[0].kernel.gamma
    for line in found.report.lines[:20]:
        row = int(line["row"]) - 1
        pool = in_use[in_use != row]
        away = np.abs(features[pool] - features[row]).sum(axis=1)
        nearest = pool[np.argsort(away)[:5]]
        assert [n[0] for n in line["neighbours"]] == [str(r + 1) for r in nearest]
        np.testing.assert_allclose(
            [n[2] for n in line["neighbours"]], np.exp(-gamma * np.sort(away)[:5])
        )


def test_trusted_labels_are_kept_and_said_so(table):
    X, y = table
    trusted = np.zeros(len(y), dtype=bool)
    trusted[5] = True
    found = audit(X, y, trusted=trusted, estimator=Quick())
    labels = found.labels.set_index("row")
    assert labels.loc[6, "verdict"] == "trusted"
    assert labels.loc[18, "verdict"] == "flagged"
    assert found.summary.n_trusted == 1


def test_polars_in_polars_out(table, found):
    X, y = table
    other = audit(pl.from_pandas(X), pl.Series("price", y), estimator=Quick())
    assert isinstance(other.labels, pl.DataFrame) and isinstance(
        other.predictions, pl.DataFrame
    )
    assert other.labels["quality"].to_list() == found.labels["quality"].tolist()
    assert other.summary.target == "price"


def test_arrays_and_ids(rng):
    X = rng.normal(size=(60, 3))
    y = X[:, 0].copy()
    y[7] += 9.0
    found = audit(X, list(y), ids=[f"p{i}" for i in range(60)], estimator=Quick())
    assert found.labels["id"].iloc[0] == "p7"


@pytest.mark.parametrize("name", ["quality", "probability", "given"])
def test_ids_are_written_as_they_are_whatever_their_column_is_called(table, name):
    X, y = table
    ids = pd.Series([f"p{i}" for i in range(len(y))], name=name)
    found = audit(X, y, ids=ids, estimator=Quick())
    for frame in (found.labels, found.predictions):
        lines = b"".join(table_csv(frame)).decode().splitlines()
        assert [line.split(",")[0] for line in lines[1:]] == frame.iloc[:, 0].tolist()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(rng, n_classes):
    n = 90
    own = np.arange(n) % n_classes
    X = pd.DataFrame(rng.normal(size=(n, 2)) * 0.5 + 4.0 * np.eye(3)[own][:, :2])
    names = np.array(["red", "green", "blue"], dtype=object)
    y = names[own]
    y[4] = names[(own[4] + 1) % n_classes]
    y[80:] = None
    found = audit(X, y, classify=True, estimator=Quick(classify=True))
    worst = found.labels.iloc[0]
    assert worst["row"] == 5 and worst["verdict"] == "flagged"
    assert worst["given"] == y[4] and worst["expected"] == names[own[4]]
    assert worst["reason"].startswith(f"given {y[4]}, expected {names[own[4]]}; 5 of the 5")
    assert found.predictions["prediction"].tolist() == names[own[80:]].tolist()
    assert found.report.summary.kind == "classification"
    assert set(found.predictions.columns) == {
        "row",
        "prediction",
        "lower",
        "upper",
        "probability",
    }


def test_parameters_chosen_on_some_labels_are_used_on_all(table):
    X, y = table
    found = audit(X, y, estimator=Quick(), max_selection_rows=50)
    assert len(found.labels) == 100
    assert any("50 of the 100 labels" in sentence for sentence in found.summary.findings)
    assert sorted(found.labels["row"][:3]) == [6, 18, 61]


def test_views_of_columns_become_views_of_features(table, monkeypatch):
    X, y = table
    monkeypatch.setattr(choice, "_chooser", lambda options, views: Quick(views=views))
    views = [View(["size"], "linear", name="line"), View(["town", "day"], "laplacian")]
    found = audit(X, y, views=views)
    columns = [view.columns for view in found.model.named_steps["estimator"].regressor.views]
    names = found.model.named_steps["features"].get_feature_names_out()
    assert names[columns[0]].tolist() == ["size"]
    assert "town = north" in names[columns[1]] and "day elapsed days" in names[columns[1]]
    assert sorted(found.labels["row"][:3]) == [6, 18, 61]
    with pytest.raises(TableError, match=r"view 'v': there is no column 'sze' .*'size'"):
        audit(X, y, views=[View(["sze"], name="v")])
    with pytest.raises(TableError, match=r"view 'v': column 'one' was left out .*\(constant\)"):
        audit(X.assign(one=1.0), y, views=[View(["one"], name="v")])


def test_files(found, tmp_path):
    found.to_csv(tmp_path / "a.csv")
    found.to_parquet(tmp_path / "a.parquet")
    found.to_html(tmp_path / "a.html")
    # As text first: parsers of old versions of pandas lose the last digit.
    again = pd.read_csv(tmp_path / "a.csv", dtype={"given": str}).astype({"given": float})
    assert list(again.columns) == list(found.labels.columns)
    np.testing.assert_array_equal(again["given"], found.labels["given"])
    np.testing.assert_allclose(again["expected"], found.labels["expected"], rtol=1e-6)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), found.labels)
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.csv", "a.html", "a.parquet"]


def test_report_counts(found):
    report = found.report
    summary = report.summary
    assert summary is found.summary
    assert (summary.n_rows, summary.n_labelled, summary.n_unlabelled) == (120, 100, 20)
    assert summary.n_flagged == (found.labels["verdict"] == "flagged").sum()
    assert report.path[1][0] <= 100 and len(report.points.row) == 100
    assert dict(summary.settings)["data SHA-256"]


def test_the_same_table_has_the_same_hash_and_order(table):
    first, second = (audit(*table, estimator=Quick()) for _ in range(2))
    assert dict(first.summary.settings) == dict(second.summary.settings)
    changed = table[0].assign(size=table[0]["size"] + 1e-9)
    third = audit(changed, table[1], estimator=Quick())
    key = "data SHA-256"
    assert dict(third.summary.settings)[key] != dict(first.summary.settings)[key]


def test_warnings_of_the_fit_are_notes(rng):
    X = rng.normal(size=(12, 2))
    y = rng.normal(size=12)
    y[:6] += 1000.0 * rng.normal(size=6)
    found = audit(X, y, estimator=Quick())
    assert any("few" in sentence for sentence in found.summary.findings)
    model = found.model.named_steps["estimator"]
    many = model.removed_.sum() > 0.3 * 12
    assert many == any(note.startswith("Warning: ") for note in found.summary.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [None] * 8}, "no label at all"),
        ({"y": ["x", "1", *"234567"]}, "row 1 'x'"),
        ({"y": [True, False] * 4}, "use classify=True for classes"),
        ({"y": ["1,200", *"2345678"]}, "write 1234 where it says 1,234"),
        ({"y": list("abcdefgh"), "classify": True}, "8 of 8 labels are alone in their class"),
        ({"X": "h.csv"}, r"X must be a table.*pandas\.read_csv"),
        ({"y": [np.inf] + [1.0] * 7}, "row 1 'inf'"),
        ({"y": [1.0] * 7}, "8 rows but y has 7"),
        ({"ids": [1, 1, *range(2, 8)]}, "rows 1 and 2 both have '1'"),
        ({"ids": [None, *range(7)]}, "row 1 has no id"),
        ({"trusted": [2] * 8}, "trusted must hold"),
        ({"groups": ["a"] * 8}, "all 8 labels are in one group, .* give finer ones"),
        ({"groups": ["a", "b"]}, r"groups must hold one group a row, shape \(8,\), got"),
        ({"X": np.ones((8, 2))}, r"no column is left to learn from: x0, x1 \(constant\)"),
        ({"coverage": 1.5}, "coverage"),
    ],
)
def test_bad_input_is_one_clear_line(rng, change, message):
    arguments = {"X": rng.normal(size=(8, 2)), "y": np.arange(8.0), **change}
    with pytest.raises(TableError, match=message) as caught:
        audit(arguments.pop("X"), arguments.pop("y"), estimator=Quick(), **arguments)
    assert "\n" not in str(caught.value)


def make_visits(rng, people=60):
    """Five visits each, nearly alike; a person is known by the others but roughly."""
    person = np.repeat([f"p{number}" for number in range(people)], 5)
    Z = rng.normal(size=(people, 2))
    own = 8.0 * Z[:, 0] + 5.0 * np.sin(2.0 * Z[:, 1]) + 5.0 * rng.normal(size=people)
    own[:3] += 60.0
    X = Z.repeat(5, axis=0) + 0.02 * rng.normal(size=(5 * people, 2))
    y = own.repeat(5) + 0.5 * rng.normal(size=5 * people)
    return pd.DataFrame(X, columns=["a", "b"]), y, person


def test_a_wrong_value_at_all_visits_is_found_by_other_people():
    X, y, person = make_visits(np.random.default_rng(0))
    alone, found = audit(X, y), audit(X, y, groups=person)
    wrong = set(range(1, 16))
    rows = set(found.labels["row"][found.labels["verdict"] == "flagged"])
    assert rows == wrong
    rows = set(alone.labels["row"][alone.labels["verdict"] == "flagged"])
    assert not wrong & rows
    # What it says is about people not seen: less is explained, and less is promised.
    assert found.summary.explained < 0.9 < alone.summary.explained
    assert "Every label is judged by other groups only: there are 60." in found.summary.notes
    labels = found.labels[found.labels["verdict"] == "kept"]
    inside = (labels["lower"] <= labels["given"]) & (labels["given"] <= labels["upper"])
    assert 0.85 < inside.mean() <= 1.0
    assert np.isfinite(found.predict(X[:3])).all(axis=None)


def test_similar_rows_are_of_other_groups(rng):
    X, y, person = make_visits(rng, people=20)
    y[:15] -= 60.0
    found = audit(X, y, groups=[None, *person[1:]], estimator=Quick())
    owner = {"1": "no one's"} | {str(row): person[row - 1] for row in range(2, 101)}
    for line in found.report.lines:
        assert len(line["neighbours"]) == 5
        assert owner[line["row"]] not in {owner[near[0]] for near in line["neighbours"]}
    first = next(line for line in found.report.lines if line["row"] == "1")
    assert "p0" in {owner[near[0]] for near in first["neighbours"]}
    said = "there are 20, and 1 labels that belong to none."
    assert any(note.endswith(said) for note in found.summary.notes)


def test_few_and_constant_labels(rng):
    for y in ([1.0, np.nan, np.nan], [2.0, 2.0, 2.0], [1.0, 2.0, np.nan]):
        found = audit(rng.normal(size=(3, 2)), y, estimator=Quick())
        assert np.isfinite(found.labels["expected"]).all()
        assert found.labels["quality"].between(0, 1).all()


def test_bundled_table_knows_its_truth():
    corrupted = make_corrupted_diabetes(seed=3)
    target = corrupted.frame["progression"].to_numpy()
    given = ~np.isnan(target)
    assert corrupted.corrupted.sum() == 24 and (given & corrupted.corrupted).sum() == 24
    assert np.all(
        target[given & ~corrupted.corrupted] == corrupted.truth[given & ~corrupted.corrupted]
    )
    assert np.all(target[corrupted.corrupted] != corrupted.truth[corrupted.corrupted])
    assert make_corrupted_diabetes(4).corrupted.tolist() != corrupted.corrupted.tolist()


def test_estimator_is_left_alone(table):
    estimator = Quick()
    audit(*table, estimator=estimator)
    assert not hasattr(estimator, "best_estimator_")
    assert clone(estimator).get_params() == estimator.get_params()


@pytest.mark.parametrize("well_conditioned", [True, False])
def test_a_walked_path_agrees_with_the_exact_one(well_conditioned, monkeypatch, rng):
    X = rng.normal(size=(120, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=120)
    y[:6] += 4.0
    model = Quick(False)
    exact = audit(X, y, estimator=model)
    monkeypatch.setattr(threshold_path, "PATH_LABELS", 50)
    if not well_conditioned:
        monkeypatch.setattr(DenseGram, "is_well_conditioned", lambda self, mu: False)
    walked = audit(X, y, estimator=model)
    left, stepped = (
        audit.labels.sort_values("row")["left_at"].to_numpy() for audit in (exact, walked)
    )
    assert np.array_equal(np.isnan(left), np.isnan(stepped))
    known = ~np.isnan(left)
    assert known.sum() >= 6
    # A step is the first threshold of the walk at or below the exact one.
    assert np.all(stepped[known] <= left[known] * (1.0 + 1e-9))
    assert any("walked" in note for note in walked.summary.notes)


def test_widths_have_two_or_three_digits():
    widths = (151756.2, 999.6, 99.4, 9.96, 0.0123, 0.0)
    assert [summary.rough(v) for v in widths] == ["152000", "1000", "99", "10.0", "0.012", "0"]


def test_settings_tell_each_thing_once(table):
    X, y = table
    settings = dict(audit(X, y, estimator=Quick()).summary.settings)
    assert "chosen kernel" not in settings and "chosen alpha" not in settings
    assert settings["kernel"].startswith("laplacian, gamma ") and settings["alpha"] == "0.001"
    # Chosen on half of the labels, alpha is another one on all.
    settings = dict(audit(X, y, estimator=Quick(), max_selection_rows=50).summary.settings)
    assert settings["chosen alpha"] == "0.001" and settings["alpha"] == "0.0005"
