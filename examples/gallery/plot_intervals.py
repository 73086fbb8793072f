"""
Intervals around a prediction
=============================

``predict_interval`` takes its width from errors on labels that were left out. Wrong labels do
not enter, so the interval is that of right labels, and it widens where the training rows say
little.
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
# Fit
# ---
# Width and alpha are chosen from the labels too.

model = HLRegressor(gamma="loo", alpha="loo").fit(X, y)
grid = np.linspace(-3, 6, 400).reshape(-1, 1)
low, high = model.predict_interval(grid, coverage=0.9).T
print(f"wrong labels found: {(model.removed_ & is_wrong).sum()} of {is_wrong.sum()}")

# %%
# How many fresh labels does it hold, and how wide is it?

fresh = rng.uniform(-3, 6, 4000)
fresh_y = wave(fresh) + 0.2 * rng.normal(size=4000)
in_gap = (fresh > 2) & (fresh < 4)
lower, upper = model.predict_interval(fresh.reshape(-1, 1), coverage=0.9).T
held = (lower <= fresh_y) & (fresh_y <= upper)
for where, rows in (("outside the gap", ~in_gap), ("in the gap", in_gap)):
    width = (upper - lower)[rows].mean()
    print(f"{where}: {held[rows].mean():.1%} of the labels, mean width {width:.2f}")

# %%
# The picture
# -----------

fig, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
removed = model.removed_
ax.axvspan(2, 4, color="0.93", lw=0, label="no rows")
ax.plot(grid, wave(grid), color="0.6", lw=4, label="truth")
ax.fill_between(grid.ravel(), low, high, color="#2166ac", alpha=0.25, lw=0, label="90 %")
ax.plot(grid, model.predict(grid), color="#2166ac", label="prediction")
ax.scatter(x[~removed], y[~removed], s=10, color="#2166ac", alpha=0.7, label="label kept")
ax.scatter(x[removed], y[removed], s=36, marker="x", color="#b35806", label="flagged")
ax.set(xlabel="x", ylabel="y")
fig.legend(loc="outside lower center", ncols=6, fontsize=9, frameon=False)
plt.show()
