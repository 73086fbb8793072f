import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import ttest_rel
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from activehuber import HLClassifierCV
from experiments.paper import data
from experiments.paper import noisy_labels as nl
from experiments.paper.outcome import Run, facts
from experiments.paper.protocol import Split
from tests.pools import Here


def made_up(name, report=print):
    """A small set in the layout of `data.raetsch`: official splits for one, none for others."""
    rng = np.random.default_rng(len(name))
    X = rng.normal(size=(90, 3))
    t = np.where(X[:, 0] + 0.3 * rng.normal(size=90) > 0.2, 1.0, -1.0)
    if name != "German":
        return data.Raetsch(X, t, None, None)
    rows = np.array([rng.permutation(90) for _ in range(3)])
    return data.Raetsch(X, t, rows[:, :60], rows[:, 60:])


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(nl.data, "raetsch", made_up)
    monkeypatch.setattr(nl, "SIZES", {"Thyroid": (60, 30)})
    monkeypatch.setattr(nl, "QUICK_SETS", ("Thyroid", "German"))


# --- draws ------------------------------------------------------------------------------


def test_labels_are_flipped_at_the_rates_of_their_class(rng):
    t = np.repeat([1.0, -1.0], [40_000, 60_000])
    y = nl.flipped(t, (0.3, 0.1), rng)
    assert np.mean(y[:40_000] == -1.0) == pytest.approx(0.3, abs=0.01)
    assert np.mean(y[40_000:] == 1.0) == pytest.approx(0.1, abs=0.01)
    assert np.array_equal(nl.flipped(t, (0.0, 0.0), rng), t)


def test_official_splits_are_used_and_others_drawn_by_class(small):
    found = made_up("German")
    train, test = nl.splits_of("German", found)
    assert train is found.train and test is found.test
    found = made_up("Thyroid")
    train, test = nl.splits_of("Thyroid", found)
    assert train.shape == (nl.DRAWN_SPLITS, 60) and test.shape == (nl.DRAWN_SPLITS, 30)
    assert len(np.unique(train, axis=0)) == nl.DRAWN_SPLITS
    for rows, others in zip(train, test, strict=True):
        assert not set(rows) & set(others)
        assert np.mean(found.t[rows] > 0) == pytest.approx(np.mean(found.t > 0), abs=0.02)


def test_draws_go_round_the_splits_with_seeds_of_their_own(small):
    found = made_up("German")
    draws = list(nl.draws_of("German", found, 5))
    assert [draw.cell[1] for draw in draws[::5]] == list(nl.RATES)
    for k, draw in enumerate(draws[:5]):
        assert np.array_equal(draw.split.X_train, found.X[found.train[k % 3]])
        assert np.array_equal(draw.split.X_test, found.X[found.test[k % 3]])
    assert not np.array_equal(draws[0].split.y_train, draws[3].split.y_train)
    again = list(nl.draws_of("German", found, 5))
    assert np.array_equal(draws[7].split.y_train, again[7].split.y_train)


# --- peers ------------------------------------------------------------------------------


def test_kernel_least_squares_is_kernel_ridge(rng):
    X, Z = rng.normal(size=(40, 3)), rng.normal(size=(7, 3))
    y = np.sign(rng.normal(size=40))
    found = nl.kernel_least_squares(0.3, X, y, Z)
    gamma = 0.3 / (3 * X.var())
    for ridge, line in zip(nl.RIDGES, found, strict=True):
        model = KernelRidge(kernel="rbf", gamma=gamma, alpha=ridge).fit(X, y)
        np.testing.assert_allclose(line, model.predict(Z), atol=1e-10)


def test_unbiased_logistic_minimises_the_loss_as_it_is_defined(rng):
    X = rng.normal(size=(60, 2))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=60))
    rho_pos, rho_neg = rates = (0.3, 0.1)

    def ell(f, y):
        return np.log1p(np.exp(-y * f))

    def objective(z):
        f = X @ z[:2] + z[2]
        own = np.where(y > 0, rho_pos, rho_neg)
        other = np.where(y > 0, rho_neg, rho_pos)
        losses = ((1 - other) * ell(f, y) - own * ell(f, -y)) / (1 - rho_pos - rho_neg)
        return losses.mean() + 0.05 * z[:2] @ z[:2] + 0.5 * nl.INTERCEPT_PENALTY * z[2] ** 2

    w, b = nl.unbiased_logistic(rates, 0.1, X, y)
    best = minimize(objective, np.zeros(3), method="Nelder-Mead", tol=1e-12).fun
    assert objective(np.append(w, b)) <= best + 1e-9


def test_without_flips_the_unbiased_loss_is_logistic_regression(rng):
    X = rng.normal(size=(80, 3))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=80))
    w, _ = nl.unbiased_logistic((0.0, 0.0), 0.1, X, y)
    plain = LogisticRegression(C=1 / (80 * 0.1), tol=1e-8).fit(X, y)
    np.testing.assert_allclose(w, plain.coef_[0], atol=2e-3)  # its intercept is free


def test_weights_of_the_svm(rng):
    alpha = (1 - 0.3 + 0.1) / 2
    assert nl.svm_weights((0.3, 0.1)) == pytest.approx((2 * (1 - alpha), 2 * alpha))
    assert nl.svm_weights((0.4, 0.4)) == (1.0, 1.0)
    X, y = rng.normal(size=(50, 2)), np.sign(rng.normal(size=50))
    found = nl.svm((1.2, 0.8), 0.3, X, y, X)
    gamma, weights = 0.3 / (2 * X.var()), {1: 1.2, -1: 0.8}
    model = SVC(C=nl.SVM_COSTS[2], gamma=gamma, class_weight=weights).fit(X, y)
    np.testing.assert_allclose(found[2], model.decision_function(X), atol=1e-8)


def test_peers_take_the_least_held_out_error_and_the_first_of_equals(rng):
    X = rng.normal(size=(100, 1))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)

    def candidates(X, y, Z):
        return np.stack([-Z[:, 0], Z[:, 0] - 0.5, Z[:, 0], 2.0 * Z[:, 0]])

    found = nl.tuned([candidates], X, y, X, (0.0, 0.0))
    assert np.array_equal(found, X[:, 0])


def test_tuning_by_known_rates_takes_what_is_right_on_clean_labels(rng):
    """Half of the labels +1 were flipped: as given, always −1 is right most often."""
    X = rng.normal(size=(600, 1))
    y = nl.flipped(np.where(X[:, 0] > 0, 1.0, -1.0), (0.55, 0.0), rng)

    def candidates(X, y, Z):
        return np.stack([np.full(len(Z), -1.0), Z[:, 0]])

    assert np.all(nl.tuned([candidates], X, y, X, (0.0, 0.0)) == -1.0)
    assert np.array_equal(nl.tuned([candidates], X, y, X, (0.55, 0.0)), X[:, 0])


@pytest.mark.parametrize("name", [*nl.WITHOUT_RATES, *nl.WITH_RATES])
def test_every_peer_learns(name, rng):
    X = rng.normal(size=(120, 2))
    t = np.where(X[:, 0] > 0, 1.0, -1.0)
    y = nl.flipped(t[:80], (0.2, 0.1), rng)
    predicted = nl.peer(name, (0.2, 0.1), X[:80], y, X[80:])
    assert set(predicted) <= {-1.0, 1.0} and np.mean(predicted == t[80:]) > 0.85


def test_our_search_is_told_the_rates_only_if_they_are_known(monkeypatch, rng):
    seen = []

    class Spy(HLClassifierCV):
        def fit(self, X, y):
            seen.append(self.noise_rates)
            return super().fit(X, y)

    monkeypatch.setattr(nl, "HLClassifierCV", Spy)
    X = rng.normal(size=(40, 2))
    split = Split(X[:30], np.sign(X[:30, 0]), X[30:], np.sign(X[30:, 0]))
    live = nl.methods((0.3, 0.1))
    for name in (nl.OURS, nl.OURS_KNOWN):
        assert split.scored(live[name]).accuracy >= 0.8
    assert seen == [None, (0.3, 0.1)]


# --- comparison -------------------------------------------------------------------------


def test_ours_is_paired_with_the_best_peer_of_the_cell(rng):
    found = {name: 70.0 + rng.normal(size=20) for name in ("ours", "a", "b")}
    found["b"] = found["b"] + 2.0
    one = nl.compared(("Heart", (0.2, 0.2)), found, "ours", ("a", "b"))
    assert one.best == "b" and one.worse
    assert one.p == pytest.approx(ttest_rel(found["ours"], found["b"]).pvalue)
    assert one.error == pytest.approx(np.std(found["ours"] - found["b"], ddof=1) / 20**0.5)
    assert not nl.compared(("Heart", (0.2, 0.2)), found, "b", ("a", "ours")).worse


@pytest.mark.parametrize(("gap", "p", "worse"), [(0.0, 1.0, False), (-1.0, 0.0, True)])
def test_draws_that_all_differ_alike(gap, p, worse):
    found = {"ours": np.arange(20.0) + gap, "a": np.arange(20.0)}
    one = nl.compared(("Heart", (0.2, 0.2)), found, "ours", ("a",))
    assert (one.p, one.worse) == (p, worse)


# --- the whole --------------------------------------------------------------------------


def test_draws_are_scored_in_their_order_with_every_method(small):
    draws = list(nl.draws_of("German", made_up("German"), 2))[2:4]
    said = []
    scores, _ = nl.scored(draws, Run(report=said.append))
    assert list(scores) == [("German", (0.3, 0.1))] and len(said) == 1
    found = scores["German", (0.3, 0.1)]
    assert list(found) == [name for name in nl.ROWS if name not in nl.QUOTED]
    for k, draw in enumerate(draws):
        truth = 100.0 * draw.split.scored(nl.rule_of_thumb).accuracy
        assert found[nl.THUMB][k] == pytest.approx(truth)


def test_equal_rates_make_the_weighted_svm_the_svm(small, monkeypatch):
    monkeypatch.setattr(nl, "methods", lambda rates: {n: fake(n) for n in (nl.SVM, "C-SVM")})

    def fake(name):
        return lambda X, y, Z: np.full(len(Z), 1.0 if name == nl.SVM else -1.0)

    draws = list(nl.draws_of("German", made_up("German"), 1))
    for draw, same in zip(draws, (True, False, True), strict=True):
        found, _ = nl.accuracies(draw)
        assert (found[nl.SVM] == found[nl.WEIGHTED_SVM]) == same


def test_what_ours_warns_of_is_told(small, monkeypatch):
    def doubtful(X, y, Z):
        warnings.warn(f"a residual of {len(y)}; do", ConvergenceWarning, stacklevel=1)
        return np.ones(len(Z))

    def methods(rates):
        return dict.fromkeys(nl.HLR, doubtful) | dict.fromkeys(
            nl.PEERS, lambda X, y, Z: Z[:, 0]
        )

    monkeypatch.setattr(nl, "methods", methods)
    monkeypatch.setattr(nl, "two_processes", Here)
    outcome = nl.noisy_labels(Run(quick=True, report=print))
    assert outcome.tables[0].notes[-1] == (
        "Warnings of HLR in 36 fits: “a residual of …” 36 times."
    )


def made_up_scores(draws, run):
    """Accuracies without a fit, (2,) a cell and method."""
    rng = np.random.default_rng(0)
    live = [name for name in nl.ROWS if name not in nl.QUOTED]
    return {d.cell: {name: rng.uniform(60.0, 90.0, 2) for name in live} for d in draws}, []


def test_outcome_of_a_quick_run(small, monkeypatch):
    monkeypatch.setattr(nl, "scored", made_up_scores)
    outcome = nl.noisy_labels(Run(quick=True, report=print))
    table, reach = outcome.tables
    cells = {(cell.keys, cell.metric): cell for cell in table.cells}
    assert len(cells) == 2 * len(nl.ROWS) * 3
    for row in facts("noisy_labels"):
        if row["set"] != "German":
            continue
        method = nl.OURS if row["method"] == "HLR" else row["method"]
        cell = cells[("German", method), f"{row['rho_plus']}/{row['rho_minus']}"]
        assert cell.paper == float(row["value"])
        assert (cell.ours is None) == (method in nl.QUOTED)
    expected, _ = made_up_scores(nl.draws_of("German", made_up("German"), 2), None)
    # Thyroid comes first and takes the first random numbers.
    assert cells[("Thyroid", nl.THUMB), "0.2/0.2"].ours == pytest.approx(
        expected["German", (0.2, 0.2)][nl.THUMB].mean()
    )
    assert len(reach.cells) == 2 * 6 * 5
    worse = sum(c.ours for c in reach.cells if c.metric == "worse" and c.keys[0] == "unknown")
    assert f"in {6 - int(worse)} of 6 cells" in outcome.findings[0]
    axes = outcome.figures["differences"].axes
    assert [len(axis.collections[-1].get_offsets()) for axis in axes] == [6, 6]
    assert any("Quick run" in note for note in table.notes)
    assert any("German 3" in note for note in table.notes)
    assert any("Thyroid 60/30" in note for note in table.notes)


def test_findings_say_what_the_cells_say():
    cells = {("Heart", rates): {} for rates in nl.RATES}
    for cell, ours in zip(cells, (90.0, 60.0, 60.0), strict=True):
        names = (nl.THUMB, nl.OURS_KNOWN, *nl.WITHOUT_RATES, *nl.WITH_RATES)
        cells[cell] = {name: 70.0 + 0.1 * np.arange(4.0) for name in names}
        cells[cell][nl.OURS] = ours + 0.1 * np.arange(4.0)
    findings = nl._findings(cells, nl.comparisons(cells))
    assert (
        "in 1 of 3 cells, ahead of it in 1; worse in Heart 0.3/0.1, Heart 0.4/0.4"
        in findings[0]
    )
    assert "in 3 of 3 cells, ahead of it in 0." in findings[1]
    assert "not better than kernel least squares (70.15 and 70.15 %)" in findings[2]
    assert all("one-sided test it would be" in finding for finding in findings[:2])
    # The paper's HLR on Heart: 81.53, 77.28, 70.69.
    assert "reached in 1 of 3" in findings[3] and "reached in 0 of 3" in findings[4]


def test_averages_are_given_without_image_too():
    names = (nl.THUMB, nl.OURS, nl.OURS_KNOWN, *nl.WITHOUT_RATES, *nl.WITH_RATES)
    cells = {}
    for name, ours in (("Heart", 60.0), ("Image", 90.0)):
        found = {each: np.array([70.0, 70.0]) for each in names}
        cells[name, nl.RATES[0]] = found | {nl.OURS: np.array([ours, ours])}
    said = nl._findings(cells, nl.comparisons(cells))[2]
    assert "is better than" in said
    assert "(75.00 and 70.00 %), without Image 60.00 and 70.00 %." in said


def test_means_equal_but_for_rounding_are_not_ahead():
    names = (nl.THUMB, nl.OURS, nl.OURS_KNOWN, *nl.WITHOUT_RATES, *nl.WITH_RATES)
    found = {name: np.array([0.1 + 0.2, 0.7]) for name in names}
    found |= {name: np.array([0.7, 0.3]) for name in nl.WITHOUT_RATES + nl.WITH_RATES}
    cells = {("Heart", nl.RATES[0]): found}
    findings = nl._findings(cells, nl.comparisons(cells))
    assert "in 1 of 1 cells, ahead of it in 0." in findings[0]


@pytest.mark.data
def test_the_official_splits_are_at_hand(data_folder):
    counts = {"Breast Cancer": 10, "German": 10, "Image": 9, "Diabetes": 1}
    for name in nl.SETS:
        found = data.raetsch(name)
        train, test = nl.splits_of(name, found)
        assert len(train) == counts.get(name, nl.DRAWN_SPLITS)
        assert (found.train is None) == (name not in counts)
        if name in nl.SIZES:
            assert (train.shape[1], test.shape[1]) == nl.SIZES[name]
