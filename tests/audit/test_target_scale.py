"""The scale on which a target is judged."""

import numpy as np
import pandas as pd
import pytest

from activehuber import HLRegressor, audit
from activehuber.audit.choice import choose_scale
from activehuber.estimators.target_scale import ScaledRegressor, TargetScale
from activehuber.persistence.model_files import Model, load_model, save_model
from activehuber.runtime.messages import TableError

SCALES = [
    TargetScale(),
    TargetScale("log"),
    TargetScale("yeo-johnson", 0.0, 3.0),
    TargetScale("yeo-johnson", 0.5, 0.2),
]


@pytest.fixture
def prices(rng):
    """Noise of a third of the price, of which a tenth are ten times the usual one."""
    X = rng.normal(size=(240, 3))
    y = np.exp(7.0 + 1.2 * X[:, 0] - 0.6 * X[:, 1] + 0.3 * rng.normal(size=240))
    return pd.DataFrame(X, columns=["a", "b", "c"]), y


def flagged(found):
    return set(found.labels.loc[found.labels["verdict"] == "flagged", "row"])


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_there_and_back(scale):
    y = np.array([1e-6, 0.3, 1.0, 50.0, 1e7])
    y = y if scale.kind == "log" else np.concatenate([-y, [0.0], y])
    assert scale.inverse(scale.forward(y)) == pytest.approx(y, rel=1e-9)
    assert np.all(np.diff(scale.forward(np.sort(y))) > 0)
    step = 1e-6 * np.abs(y) + 1e-9
    slope = (scale.forward(y + step) - scale.forward(y - step)) / (2 * step)
    inside = np.abs(y) > 1e-3
    assert np.log(slope[inside]) == pytest.approx(scale.log_slope(y)[inside], abs=1e-3)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_an_interval_holds_what_is_expected_and_is_never_empty(scale):
    t, half = np.linspace(-3, 3, 13), np.full(13, 0.5)
    for not_negative in (False, True):
        own = TargetScale(scale.kind, scale.exponent, scale.unit, not_negative)
        y, low, high = own.interval(t, half)
        assert np.all(low <= y) and np.all(y < high)
        assert not not_negative or np.all(low >= 0)
        assert np.array_equal(y, own.inverse(t))


def test_high_prices_are_no_errors_and_gross_ones_are_found(prices):
    X, y = prices
    found = audit(X, y)
    assert len(flagged(found)) <= 2
    assert "logarithm" in " ".join(found.summary.findings)
    assert (found.labels["lower"] > 0).all()
    wrong = np.arange(0, 240, 40)
    y[wrong] *= 100
    assert set(wrong + 1) <= flagged(audit(X, y))


def test_counts_that_are_mostly_zero(rng):
    """0.1.0 flagged every count above 0."""
    X = rng.normal(size=(400, 3))
    y = rng.poisson(0.25 * np.exp(0.7 * X[:, 0])).astype(float)
    assert 0.15 < np.mean(y > 0) < 0.5
    found = audit(X, y)
    assert len(flagged(found)) <= 4
    assert (found.labels["expected"] >= 0).all()
    assert (found.labels["upper"] > found.labels["lower"]).all()
    y[[3, 77, 200, 301]] = 15 * y.max()
    assert {4, 78, 201, 302} <= flagged(audit(X, y))


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e6])
def test_units_change_no_verdict(prices, factor):
    X, y = prices
    y[5] = 0.0  # no logarithm of this one
    one, other = audit(X, y), audit(X, factor * y)
    assert one.labels["row"].tolist() == other.labels["row"].tolist()
    assert one.labels["verdict"].tolist() == other.labels["verdict"].tolist()
    assert other.labels["expected"].to_numpy() == pytest.approx(
        factor * one.labels["expected"].to_numpy(), rel=1e-6
    )


def test_rows_in_another_order_choose_the_same(prices):
    X, y = prices
    order = np.random.default_rng(3).permutation(len(y))
    nobody = np.zeros(len(y), dtype=bool)
    one = choose_scale(X.to_numpy(), y, nobody, "auto", 0)
    assert one == choose_scale(X.to_numpy()[order], y[order], nobody, "auto", 0)
    assert one.kind == "log"


def test_noise_of_one_size_leaves_the_target_as_it_is(rng):
    X = rng.normal(size=(200, 2))
    y = 50 + 10 * X[:, 0] + 3 * rng.normal(size=200)
    y[:10] *= 10  # wrong labels do not choose
    scale = choose_scale(X, y, np.zeros(200, dtype=bool), "auto", 0)
    assert scale == TargetScale()


@pytest.mark.parametrize("kind", ["none", "log", "yeo-johnson", None])
def test_a_scale_that_is_asked_for(prices, kind):
    found = audit(*prices, target_transform=kind)
    assert found.model.named_steps["estimator"].scale.kind == (kind or "none")


def test_a_model_file_knows_its_scale(prices, tmp_path):
    X, y = prices
    found = audit(X, y)
    path = tmp_path / "model.skops"
    save_model(Model(found.model, "price", None, 0.9), path)
    again = load_model(path)
    assert isinstance(again.estimator, ScaledRegressor)
    assert np.allclose(again.pipeline.predict(X), found.model.predict(X), rtol=1e-9)
    inside = found.predict(X)
    assert (inside["lower"] <= inside["prediction"]).all() and (inside["lower"] > 0).all()


def test_a_scaled_regressor_fits_by_itself(prices):
    X, y = prices
    model = ScaledRegressor(HLRegressor(gamma=0.1), TargetScale("log")).fit(X, y)
    assert np.allclose(np.log(model.predict(X)), model.regressor_.predict(X))
    assert model.removed_.shape == (240,)


def test_what_cannot_be_done_is_one_line(prices):
    X, y = prices
    with pytest.raises(TableError, match="target_transform must be auto, none, log"):
        audit(X, y, target_transform="sqrt")
    with pytest.raises(TableError, match="target_transform is for numbers"):
        audit(X, y > 1000, classify=True, target_transform="log")
    y[3] = -1.0
    with pytest.raises(TableError, match=r"holds -1, and only .*use target_transform='yeo"):
        audit(X, y, target_transform="log")
