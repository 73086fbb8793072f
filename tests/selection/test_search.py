"""Leave-one-out in closed form, its gradient, and what the search makes of them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal
from sklearn.kernel_ridge import KernelRidge

from activehuber import HLRegressor
from activehuber.kernels.kernel import Kernel
from activehuber.selection import criterion
from activehuber.selection import scoring as judging
from activehuber.selection import search as selection
from activehuber.selection.candidates import Family, MovableKernel, Point
from activehuber.selection.criterion import ObservedLabels
from activehuber.selection.search import Plan
from tests import oracles


def family(name, X, gamma=0.3, share=1.0):
    part = MovableKernel(Kernel(name, gamma), X, share, np.zeros(X.shape[1], dtype=int))
    return Family(name, (part,), 1)


def place(members, z):
    """The point with these log factors, the last of them the log of the ridge."""
    return Point(members, z[:-1], z[-1])


def one_width_each(members):
    return Point(members, np.zeros(members.n_widths), 0.0).with_one_width_each().family


def labels(y, weights=None, fit_intercept=True):
    weights = np.ones(len(y)) if weights is None else weights
    rows = np.arange(len(y))
    return ObservedLabels(y, weights, rows < 0, fit_intercept, rows, rows >= 0)


def wiggly(rng, n=60, d=3):
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=n)


def errors_of(Q, given, ridge):
    """Leave-one-out errors of the least-squares fit, as the criterion has them."""
    mu = ridge / given.weights
    P, _ = criterion.projected_inverse(Q.copy(), mu, given.fit_intercept)
    return criterion.LeftOut.of(P, given, mu).errors.ravel()


# --- closed form against refits ---------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_least_squares_errors_equal_refits(kernel, fit_intercept, rng):
    X, y = wiggly(rng, 25)
    ridge = 0.05
    Q = oracles.gram(kernel, X, gamma=0.3)
    found = errors_of(Q, labels(y, None, fit_intercept), ridge)
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        A = Q[np.ix_(others, others)] + ridge * np.eye(len(y) - 1)
        if fit_intercept:
            ones = np.ones((len(y) - 1, 1))
            A = np.block([[A, ones], [ones.T, np.zeros((1, 1))]])
            v = np.linalg.solve(A, np.append(y[others], 0.0))
            predicted = Q[i, others] @ v[:-1] + v[-1]
        else:
            predicted = Q[i, others] @ np.linalg.solve(A, y[others])
        assert found[i] == pytest.approx(y[i] - predicted, abs=1e-8)


def test_a_weight_of_two_leaves_one_of_two_equal_labels_out(rng):
    X, y = wiggly(rng, 20)
    weights = np.where(np.arange(20) < 5, 2.0, 1.0)
    twice = np.repeat(np.arange(20), weights.astype(int))
    Q = oracles.gram("rbf", X, gamma=0.3)
    found = errors_of(Q, labels(y, weights), 0.1)
    repeated = errors_of(Q[np.ix_(twice, twice)], labels(y[twice]), 0.1)
    np.testing.assert_allclose(found[twice], repeated, rtol=1e-8)


@pytest.mark.parametrize("threshold", [0.4, np.inf, "adaptive"])
def test_leave_one_out_of_a_fit_equals_refits_where_the_pattern_stays(threshold, rng):
    X, y = wiggly(rng, 60)
    y[:4] += 2.0
    alpha = 1e-3
    model = HLRegressor(gamma=0.3, alpha=alpha, threshold=threshold).fit(X, y)
    xi = threshold if threshold == 0.4 else np.inf
    used = np.flatnonzero(~model.removed_)
    X, y = X[used], y[used]
    n = len(y)
    free = np.abs(model.residuals_[used]) <= model.threshold_ * (1.0 + 1e-12)
    exact = model.loo_refit(used)
    same = 0
    for i in range(n):
        others = np.arange(n) != i
        refit = HLRegressor(gamma=0.3, alpha=alpha * n / (n - 1), threshold=xi)
        refit.fit(X[others], y[others])
        still = np.abs(refit.residuals_) <= refit.threshold_ * (1.0 + 1e-12)
        missed = y[i] - refit.predict(X[i : i + 1])[0]
        assert exact[i] == pytest.approx(missed, abs=1e-8)
        if np.array_equal(still, free[others]):
            same += 1
            assert model.loo_residuals_[used[i]] == pytest.approx(missed, abs=1e-8)
    assert same > 0.4 * n


def grouped(given, rng):
    return replace(given, groups=rng.integers(-1, 7, len(given)))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_groups_are_predicted_by_other_groups(fit_intercept, rng):
    """The density of errors without the group, from fits without it."""
    X, y = wiggly(rng, 24)
    given = grouped(labels(y, np.tile([1.0, 0.5, 2.0], 8), fit_intercept), rng)
    groups = np.where(given.weights > 1.0, np.maximum(given.groups, 0), given.groups)
    given, ridge = replace(given, groups=groups), 0.1
    mu, Q = ridge / given.weights, oracles.gram("rbf", X, gamma=0.3)
    errors, sizes = np.empty(24), np.empty(24)
    for i in range(24):
        own = groups == groups[i] if groups[i] >= 0 else np.arange(24) == i
        others = np.flatnonzero(~own)
        n = len(others)
        A = np.zeros((n + 1, n + 1))
        A[:n, :n] = Q[np.ix_(others, others)] + np.diag(mu[others])
        A[:n, n] = A[n, :n] = float(fit_intercept)
        A[n, n] = 0.0 if fit_intercept else 1.0
        k = np.append(Q[others, i], float(fit_intercept))
        v = np.linalg.solve(A, k)
        errors[i] = y[i] - v[:n] @ y[others]
        sizes[i] = Q[i, i] - k @ v + mu[i] * max(1.0, given.weights[i])
    square = np.average(errors**2 / sizes, weights=given.weights)
    expected = -0.5 * (np.log(square) + np.average(np.log(sizes), weights=given.weights))
    assert criterion.evidence(Q.copy(), given, ridge) == pytest.approx(expected)
    found = criterion.levels_at_ridges(Q.copy(), given, [ridge, 5.0], 0.0)
    assert found[0] == pytest.approx(expected) and found[1] != found[0]


def test_the_criterion_of_groups_of_one_is_that_of_labels(rng):
    X, y = wiggly(rng, 30)
    members, given = family("rbf", X), labels(y)
    start = Point(members, np.zeros(1), -2.0)
    found = criterion.criterion(start, given, 0.1)
    for groups in (np.arange(30), np.where(np.arange(30) < 9, -1, np.arange(30))):
        other = criterion.criterion(start, replace(given, groups=groups), 0.1)
        for one, two in zip(found, other, strict=True):
            assert one == pytest.approx(two)


def test_folds_keep_groups_together(rng):
    groups = rng.integers(-1, 12, 100)
    folds = selection.folds_of(100, 0, groups)
    assert len(folds) == 5
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(100))
    for train, test in folds:
        shared = np.intersect1d(groups[train], groups[test])
        assert shared.tolist() in ([], [-1])
        assert 15 <= len(test) <= 25
    # By their rows, not by their numbers; and a part drawn from one group has folds too.
    renamed = np.where(groups < 0, -1, 11 - groups)
    for one, two in zip(folds, selection.folds_of(100, 0, renamed), strict=True):
        np.testing.assert_array_equal(one[1], two[1])
    assert len(selection.folds_of(30, 0, np.zeros(30, dtype=int))) == 5


# --- the gradient -----------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern"])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("groups", [False, True])
def test_slopes_equal_finite_differences(kernel, many, columns, fit_intercept, groups, rng):
    X, y = wiggly(rng, 40)
    Y = y if columns == 1 else np.sign(rng.normal(size=(40, columns)))
    given = labels(Y, rng.integers(1, 4, 40).astype(float), fit_intercept)
    given = grouped(given, rng) if groups else given
    members = family(kernel, X)
    members = one_width_each(members) if many else members
    z = np.append(0.3 * rng.normal(size=members.n_widths), -2.0)

    def level(at):
        return criterion.criterion(place(members, at), given, 0.1)[0]

    _, slopes = criterion.criterion(place(members, z), given, 0.1)
    steps = 1e-5 * np.eye(len(z))
    expected = [(level(z + step) - level(z - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-9)


def test_slopes_of_views(rng):
    X, y = wiggly(rng, 30, 4)
    parts = (
        MovableKernel(Kernel("rbf", 0.5), X[:, :2].copy(), 0.25, np.zeros(2, dtype=int)),
        MovableKernel(Kernel("laplacian", 0.2), X[:, 2:].copy(), 0.25, np.zeros(2, dtype=int)),
        MovableKernel(Kernel("linear"), X.copy(), 0.25, np.full(4, -1)),
    )
    members = one_width_each(Family("views", parts, 1))
    assert members.n_widths == 2
    z = np.array([0.2, -0.3, -2.0])

    def level(at):
        return criterion.criterion(place(members, at), labels(y), 0.1)[0]

    _, slopes = criterion.criterion(place(members, z), labels(y), 0.1)
    expected = [(level(z + s) - level(z - s)) / 2e-5 for s in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-9)


def test_improving_lowers_the_criterion_and_finds_what_matters(rng):
    X, y = wiggly(rng, 120)
    start = Point(family("rbf", X), np.zeros(1), np.log(0.1)).with_one_width_each()
    end = criterion.improve(start, labels(y), 40)

    def level(point):
        return criterion.criterion(point, labels(y), 0.03)[0]

    assert level(end) < level(start) - 0.1
    widths = end.family.parts[0].widths(end.theta)
    assert widths[0] > 5.0 * max(widths[1:])


# --- the evidence -----------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_evidence_is_the_likelihood_of_a_gaussian_process(fit_intercept, rng):
    """With an intercept, of the contrasts that are free of it; σ² where it is largest."""
    X, y = wiggly(rng, 12)
    y = np.sign(y)
    basis = null_space(np.ones((1, 12))) if fit_intercept else np.eye(12)

    def largest(A):
        seen, inside = basis.T @ y, basis.T @ A @ basis
        return max(
            multivariate_normal(cov=np.exp(s) * inside).logpdf(seen)
            for s in np.linspace(-6.0, 6.0, 4001)
        )

    found, expected = [], []
    for gamma, ridge in ((0.3, 0.1), (1.0, 3.0)):
        Q = oracles.gram("rbf", X, gamma=gamma)
        expected.append(largest(Q + ridge * np.eye(12)) / 12)
        found.append(criterion.evidence(Q.copy(), labels(y, None, fit_intercept), ridge))
    assert found[1] - found[0] == pytest.approx(expected[1] - expected[0], abs=1e-5)


def test_evidence_counts_weights_as_repetitions(rng):
    X, y = wiggly(rng, 20)
    weights = rng.integers(1, 4, 20).astype(float)
    many = np.repeat(np.arange(20), weights.astype(int))
    Q, gaps = oracles.gram("rbf", X, gamma=0.5), []
    for given, K in ((labels(y, weights), Q), (labels(y[many]), Q[np.ix_(many, many)])):
        levels = [criterion.evidence(K.copy(), given, ridge) for ridge in (0.1, 5.0)]
        gaps.append(levels[1] - levels[0])
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-10)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_slopes_of_the_evidence_equal_finite_differences(many, columns, fit_intercept, rng):
    X, y = wiggly(rng, 40)
    Y = np.sign(y) if columns == 1 else np.sign(rng.normal(size=(40, columns)))
    given = labels(Y, rng.integers(1, 4, 40).astype(float), fit_intercept)
    members = family("laplacian", X)
    members = one_width_each(members) if many else members
    z = np.append(0.3 * rng.normal(size=members.n_widths), -0.5)

    def level(at):
        return criterion.negative_log_marginal_likelihood(place(members, at), given)[0]

    value, slopes = criterion.negative_log_marginal_likelihood(place(members, z), given)
    Q, ridge = place(members, z).gram(), np.exp(z[-1])
    assert value == pytest.approx(-criterion.evidence(Q, given, ridge))
    steps = 1e-5 * np.eye(len(z))
    expected = [(level(z + step) - level(z - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-9)


def test_evidence_of_equal_codes_is_finite(rng):
    Q = oracles.gram("rbf", rng.normal(size=(10, 2)), gamma=0.5)
    assert np.isfinite(criterion.evidence(Q, labels(np.ones(10)), 1.0))


# --- the search -------------------------------------------------------------------------


def test_held_out_errors_are_those_of_plain_fits(rng):
    X, y = wiggly(rng, 40)
    folds = selection.folds_of(40, 0)
    Q = oracles.gram("rbf", X, gamma=0.3)
    found = judging.held_out_errors(
        Q, labels(y, None, False), 0.4, np.ones(40, dtype=bool), folds
    )
    for train, test in folds:
        ridge = KernelRidge(kernel="rbf", gamma=0.3, alpha=0.4 * len(train) / 40)
        expected = y[test] - ridge.fit(X[train], y[train]).predict(X[test])
        np.testing.assert_allclose(found[test], expected, atol=1e-9)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(40))


def test_wrong_labels_do_not_steer_the_choice(rng):
    X, y = wiggly(rng, 150)
    dirty = y.copy()
    dirty[:30] += rng.uniform(3.0, 8.0, 30)
    plan = Plan((-2.0, 0.0, 1.0), (-6.0, -3.0, 0.0))
    ends = [selection.search([family("rbf", X)], labels(v), plan)[0] for v in (y, dirty)]
    clean, corrupted = (end.point for end in ends)
    assert abs(clean.theta[0] - corrupted.theta[0]) < 1.0


def test_a_sum_of_points_is_their_mean(rng):
    X, _ = wiggly(rng, 15)
    left = Point(family("rbf", X), np.array([0.3]), -1.0)
    right = Point(family("laplacian", X), np.array([-0.2]), -3.0).with_one_width_each()
    third = Point(family("matern", X), np.array([0.1]), -8.0)
    several = selection.sum_of([left, right, third])
    mean = (left.gram() + right.gram() + third.gram()) / 3.0
    np.testing.assert_allclose(several.gram(), mean, atol=1e-14)
    assert several.log_ridge == pytest.approx(-4.0)
    # Widths of their own start where the shared ones were, a set of them for every kernel.
    many = several.with_one_width_each()
    assert len(many.theta) == 3 * X.shape[1]
    np.testing.assert_allclose(many.gram(), mean, atol=1e-14)


def test_kernels_together_see_two_scales(rng):
    """A smooth trend with a rough part: neither kernel alone predicts both."""
    X = rng.uniform(-2.0, 2.0, size=(300, 3))
    rough = np.abs((3.0 * X[:, 2]) % 2.0 - 1.0)
    y = 8.0 * np.sin(X[:, 0] + X[:, 1]) + 2.0 * rough + 0.05 * rng.normal(size=300)
    plan = Plan((-2.0, 0.0, 2.0), (-6.0, -3.0, 0.0))
    both = [family("laplacian", X), family("matern", X)]
    found, _ = selection.search(both, labels(y), plan)
    alone = [selection.search([one], labels(y), plan)[0] for one in both]
    assert found.point.family.name == "laplacian + matern"
    everyone = np.arange(300)

    def loss(choice):
        Q = choice.point.gram(everyone)
        errors = judging.left_out_errors(Q, labels(y), choice.point.ridge, everyone >= 0)
        return np.mean(np.abs(errors))

    assert loss(found) < 0.8 * min(loss(one) for one in alone)


def test_no_label_can_move_a_score_far():
    errors, weights = np.full(100, 0.1), np.ones(100)
    far = errors.copy()
    far[0] = 1e9
    scale = judging.common_scale([errors, far], weights)
    assert scale == pytest.approx(0.14826, abs=1e-5)
    change = judging.robust_loss(far, weights, scale)
    change -= judging.robust_loss(errors, weights, scale)
    assert 0.0 < change < np.log1p(judging.FARTHEST**2) / 100
    assert judging.common_scale([np.zeros(3)], np.ones(3)) == 1.0
