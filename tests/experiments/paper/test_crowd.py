"""Crowd counting from given features: splits, methods and tables, on made sequences."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from activehuber import HLRegressor
from experiments.paper import crowd, crowd_peers
from experiments.paper.outcome import Run, facts


@pytest.fixture
def made(rng):
    """240 frames whose features follow the count, with a slow drift of the count."""
    count = np.round(20 + 8 * np.sin(np.arange(240) / 15) + rng.normal(size=240))
    X = np.outer(count, rng.uniform(0.5, 1.5, 30)) + 3 * rng.normal(size=(240, 30))
    return X, count


@pytest.fixture
def data_of(made, monkeypatch):
    X, count = made
    monkeypatch.setattr(crowd.data, "mall_features", lambda: (X, count))
    monkeypatch.setattr(crowd.data, "ucsd_left", lambda: (X, count))
    monkeypatch.setattr(crowd, "_MADE", {})


def test_frames_are_split_by_number(data_of, made):
    clip = crowd.mall(range(11, 21))
    split = clip.split()
    assert split.X_train[:, crowd_peers.FRAME].tolist() == list(range(11, 21))
    assert split.y_train.tolist() == made[1][10:20].tolist()
    assert not np.isin(split.X_test[:, crowd_peers.FRAME], range(11, 21)).any()


def test_smoothing_averages_neighbours_only(made):
    X = np.column_stack([made[0], np.arange(240)])
    kept = X[np.r_[0:50, 200:240]]
    smooth = crowd.smoothed(kept, 1.0)
    weights = np.exp(-0.5 * np.arange(-5, 6) ** 2)
    wanted = (weights / weights.sum()) @ X[20:31, :30]
    np.testing.assert_allclose(smooth[25, :30], wanted, rtol=1e-4)
    # Frames 50-199 are not there: frame 200 is averaged with those after it alone.
    assert np.all(smooth[50, :30] != kept[50, :30])
    weights = np.exp(-0.5 * np.arange(6) ** 2)
    np.testing.assert_allclose(
        smooth[50, :30], (weights / weights.sum()) @ X[200:206, :30], rtol=1e-4
    )
    assert crowd.smoothed(kept, 0.0) is kept


def test_smoothing_does_not_depend_on_the_order_of_rows(made, rng):
    X = np.column_stack([made[0], np.arange(240)])
    order = rng.permutation(240)
    np.testing.assert_allclose(
        crowd.smoothed(X[order], 2.0), crowd.smoothed(X, 2.0)[order], rtol=1e-12
    )


def test_least_squares_svr_is_ridge_with_a_bias(rng):
    """Against the exact least-squares limit of HLRegressor with the same kernel."""
    A, B, y = rng.normal(size=(50, 30)), rng.normal(size=(9, 30)), rng.normal(size=50)
    ours = crowd_peers._bordered(A, y, B, 0.01, 0.1)
    model = HLRegressor(kernel="rbf", gamma=0.01, alpha=0.1 / (2 * 50), threshold=np.inf)
    np.testing.assert_allclose(ours, model.fit(A, y).predict(B), atol=1e-8)


def test_peers_see_standardised_features(made):
    X = np.column_stack([made[0] * 1000.0, np.arange(240)])
    model = crowd_peers.peer(Ridge(1.0), {}, X[:100], made[1][:100], X[100:])
    centre, scale = X[:100, :30].mean(axis=0), X[:100, :30].std(axis=0)
    A, B = (X[:100, :30] - centre) / scale, (X[100:, :30] - centre) / scale
    np.testing.assert_allclose(model.predict(), Ridge(1.0).fit(A, made[1][:100]).predict(B))


def test_cumulative_attributes_count_people(made):
    X = np.column_stack([made[0], np.arange(240)])
    model = crowd_peers.cumulative_attributes(X[:120], made[1][:120], X[120:])
    assert np.mean(np.abs(model.predict() - made[1][120:])) < 1.0


def test_predictions_do_not_depend_on_the_test_counts(data_of, made, monkeypatch):
    X, count = made
    monkeypatch.setattr(crowd, "variations", lambda best: [])
    found = []
    for counts in (count, np.concatenate([count[:120], count[:119:-1] + 3.0])):
        monkeypatch.setattr(crowd.data, "mall_features", lambda counts=counts: (X, counts))
        monkeypatch.setattr(crowd, "_MADE", {})
        clips = [crowd.mall(range(1, 121))]
        found.append(crowd.hlr_results(Run(True, print), "multi", clips))
    (ones, choices), (others, choices_again) = found
    assert choices == choices_again and "tried" in choices[0]
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_array_equal(one.scored.predicted, other.scored.predicted)
        assert one.timed.removed == other.timed.removed
        assert not np.array_equal(one.scored.truth, other.scored.truth)


def test_the_choice_predicts_and_removes_few(data_of, made):
    split = crowd.mall(range(1, 121)).split()
    stages = [lambda best: [crowd.Setting("linear", 1e-3), crowd.Setting("linear", 1e-5)]]
    choices = []
    model = crowd.chosen(
        stages, split.X_train, split.y_train, split.X_test, uncounted=True, note=choices.append
    )
    assert "of 2 tried" in choices[0]
    assert np.mean(np.abs(model.predict() - made[1][120:])) < 1.5
    assert 0.0 <= model.removed < 0.2


def test_halves_count_as_much_as_fifths(made):
    """Against the same folds written out."""
    X = np.column_stack([made[0], np.arange(240)])[:60]
    y, setting, means = made[1][:60], crowd.Setting("linear", 1e-3), []
    for folds in (5, 2):
        errors = []
        for part in np.array_split(np.arange(60), folds):
            rest = np.setdiff1d(np.arange(60), part)
            model = crowd.hlr(setting, X[rest], y[rest], X[part], uncounted=False)
            errors += np.abs(model.predict() - y[part]).tolist()
        means.append(np.mean(errors))
    found = crowd.contiguous_error(setting, X, y, uncounted=False)
    assert found == pytest.approx(np.mean(means), rel=1e-12)


@pytest.mark.parametrize("name", ["crowd_multi", "crowd_semi", "crowd_ryan"])
def test_tables(data_of, monkeypatch, name):
    monkeypatch.setattr(crowd, "variations", lambda best: [])
    monkeypatch.setattr(crowd, "usual_clips", lambda run: [crowd.mall(range(1, 121))])
    lines = []
    outcome = getattr(crowd, name)(Run(True, lines.append))
    (table,) = outcome.tables
    hlr = [cell for cell in table.cells if "HLR, tab:par" in cell.keys[1]]
    metric = hlr[0].metric
    paper = {row["value"] for row in facts(name) if row["set"] == "MALL"}
    assert {c.paper for c in hlr if c.metric == metric} <= {float(value) for value in paper}
    assert all(cell.ours is None for cell in table.cells if "quoted" in cell.keys[1])
    assert any("rule of thumb" in cell.keys[1] for cell in table.cells)
    assert len(outcome.findings) == 4 and all("reached" in text for text in outcome.findings)
    assert outcome.figures and lines


def test_parameters_of_the_paper_are_used(data_of):
    clip = crowd.ucsd("all", 240, range(1, 121))
    methods = crowd.hlr_methods(Run(True, print), "multi", clip, print)
    setting = methods["HLR, tab:par, quadratic"].args[0]
    assert (setting.alpha, setting.manifold, setting.agreement) == (1e-10, 1e-11, 1e-11)
    assert setting.params["n_refinements"] == 4 and setting.params["threshold_step"] == 0.05
