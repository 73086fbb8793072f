import numpy as np
import pytest
from matplotlib import pyplot as plt

from activehuber import HLRegressor, LabelQualityDisplay, View, ViewDisplay
from tests import oracles


def fitted(q=None):
    X = np.random.default_rng(0).normal(size=(60, 4))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 2]
    y = y if q is None else np.stack([y] * q, axis=1)
    views = [View([0, 1], name="size"), View([2, 3], "linear", name="edges")]
    return HLRegressor(views=views, view_weights=[0.6, 0.3]).fit(X, y), X


@pytest.mark.parametrize("q", [None, 2])
def test_view_display_shows_weights_and_parts(q):
    model, X = fitted(q)
    display = ViewDisplay.from_estimator(model, X, target=0 if q is None else 1)
    widths = [patch.get_width() for patch in display.axes_[0].patches]
    np.testing.assert_allclose(widths, 2 * np.array([0.36, 0.09]))
    drawn = np.stack([c.get_offsets()[:, 1] for c in display.axes_[1].collections], axis=1)
    parts = model.predict_views(X)
    np.testing.assert_allclose(drawn, parts if q is None else parts[:, :, 1])
    legend = display.axes_[1].get_legend().get_texts()
    assert [text.get_text() for text in legend] == ["size", "edges"]
    plt.close(display.figure_)


def test_view_display_takes_axes():
    model, X = fitted()
    figure, axes = plt.subplots(2, 1)
    assert ViewDisplay.from_estimator(model, X, ax=axes).figure_ is figure
    with pytest.raises(ValueError, match="two Axes"):
        ViewDisplay.from_estimator(model, X, ax=axes[0])
    plt.close(figure)


@pytest.mark.parametrize("q", [None, 2])
def test_label_quality_display_shows_every_label_once(q):
    X, y, _, _ = oracles.curve(80, 0)
    y[70:] = np.nan
    model = HLRegressor(alpha=1e-3).fit(X, y if q is None else np.stack([y] * q, axis=1))
    display = LabelQualityDisplay.from_estimator(model, target=0 if q is None else 1)
    kept, removed = (c.get_offsets() for c in display.axes_[0].collections)
    assert len(kept) + len(removed) == 70
    assert len(removed) == int(np.reshape(model.removed_, (80, -1))[:, 0].sum()) > 0
    assert np.all(removed[:, 1] - removed[:, 0] > 1.0)  # labels pushed up by 3
    assert sum(p.get_height() for p in display.axes_[1].patches) == 70
    plt.close(display.figure_)
    with pytest.raises(ValueError, match="target"):
        LabelQualityDisplay.from_estimator(model, target=5)
    with pytest.raises(TypeError, match="HLRegressor"):
        LabelQualityDisplay.from_estimator("model")
