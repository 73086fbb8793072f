"""The evidence of labels under a Gaussian process."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from activehuber.numerics.likelihood import EvidenceByRidge, log_evidence
from activehuber.numerics.linalg import BreakdownError
from tests import oracles


@pytest.mark.parametrize("border", [False, True])
def test_the_evidence_is_that_of_a_gaussian_process(border):
    """Against SciPy's density at the best τ², b integrated out by a wide prior."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    levels, wanted = [], []
    for gamma in (0.1, 1.0):
        Q = oracles.gram("rbf", X, gamma=gamma)
        levels.append(30 * log_evidence(Q.copy(), y, np.ones(30), 0.3, border=border))
        A = Q + 0.3 * np.eye(30)
        if border:
            A += 1e6
            inverse = np.linalg.inv(Q + 0.3 * np.eye(30))
            sums = inverse.sum(axis=1)
            energy = y @ (inverse - np.outer(sums, sums) / sums.sum()) @ y
            tau = energy / 29
        else:
            tau = y @ np.linalg.solve(A, y) / 30
        wanted.append(
            multivariate_normal(np.zeros(30), tau * A).logpdf(y) + 0.5 * border * np.log(tau)
        )
    assert levels[1] - levels[0] == pytest.approx(wanted[1] - wanted[0], abs=1e-4)


def test_weights_are_repetitions_to_the_evidence():
    rng = np.random.default_rng(2)
    X, y, times = rng.normal(size=(20, 2)), rng.normal(size=20), rng.integers(1, 4, 20)
    again = np.repeat(np.arange(20), times)
    found = []
    for rows, weights in ((np.arange(20), times.astype(float)), (again, np.ones(len(again)))):
        levels = [
            log_evidence(
                oracles.gram("rbf", X[rows], gamma=gamma), y[rows], weights, 0.7, border=True
            )
            for gamma in (0.2, 2.0)
        ]
        found.append(levels[1] - levels[0])
    assert found[0] == pytest.approx(found[1])


def test_a_constant_that_a_matrix_swallows_is_a_breakdown(rng):
    gram = 1e308 * np.eye(6)
    found = EvidenceByRidge(gram, rng.normal(size=6), np.full(6, 1e-10), border=True, floor=1.0)
    found.ones[:] = 1e-200  # what is left of it
    with pytest.raises(BreakdownError, match="too large for doubles"):
        found.at(1.0)
