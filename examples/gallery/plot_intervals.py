"""
Intervals around a prediction
=============================

``predict_interval`` takes its width from errors on labels that were left out. Wrong labels do
not enter, so the interval is that of right labels. With ``scale="local"`` it widens where the
training rows say little.
"""

# %%
# A curve with a gap
# ------------------
# No row has x between 2 and 4, and one label in ten is wrong.

import matplotlib.pyplot as plt
import numpy as np

from activehuber import HLRegressor


def wave(x):
    """The truth."""
    return np.sin(2.5 * x) + 0.2 * x


rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, 2, 120), rng.uniform(4, 6, 50)])
y = wave(x) + 0.2 * rng.normal(size=len(x))
is_wrong = np.zeros(len(x), dtype=bool)
is_wrong[rng.choice(len(x), 17, replace=False)] = True
y[is_wrong] += rng.choice([-1, 1], 17) * rng.uniform(1.5, 2.5, 17)
X = x.reshape(-1, 1)

# %%
# Two kinds of interval
# ---------------------
# Width and alpha are chosen from the labels too.

model = HLRegressor(gamma="loo", alpha="loo").fit(X, y)
grid = np.linspace(-3, 6, 400).reshape(-1, 1)
intervals = {
    scale: model.predict_interval(grid, coverage=0.9, scale=scale)
    for scale in ("constant", "local")
}
print(f"wrong labels found: {(model.removed_ & is_wrong).sum()} of {is_wrong.sum()}")

# %%
# How many fresh labels do they hold? An interval of constant width takes no notice of the gap.

fresh = rng.uniform(-3, 6, 4000)
fresh_y = wave(fresh) + 0.2 * rng.normal(size=4000)
in_gap = (fresh > 2) & (fresh < 4)
for scale in intervals:
    low, high = model.predict_interval(fresh.reshape(-1, 1), coverage=0.9, scale=scale).T
    held = (low <= fresh_y) & (fresh_y <= high)
    print(
        f"{scale}: {held[~in_gap].mean():.1%} outside the gap, {held[in_gap].mean():.1%} in it"
    )

# %%
# The picture
# -----------

fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
removed = model.removed_
for ax, (scale, ends) in zip(axes, intervals.items(), strict=True):
    ax.axvspan(2, 4, color="0.93", lw=0, label="no rows")
    ax.plot(grid, wave(grid), color="0.6", lw=4, label="truth")
    ax.fill_between(grid.ravel(), *ends.T, color="#2166ac", alpha=0.25, lw=0, label="90 %")
    ax.plot(grid, model.predict(grid), color="#2166ac", label="prediction")
    ax.scatter(x[~removed], y[~removed], s=10, color="#2166ac", alpha=0.7, label="label kept")
    ax.scatter(x[removed], y[removed], s=36, marker="x", color="#b35806", label="flagged")
    ax.set_title(f'scale="{scale}"')
    ax.set_xlabel("x")
axes[0].set(ylabel="y")
handles, names = axes[0].get_legend_handles_labels()
fig.legend(handles, names, loc="outside lower center", ncols=6, fontsize=9, frameon=False)
plt.show()
