"""
Every threshold at once
=======================

As the threshold ξ falls, the solution moves along straight lines, with a corner wherever a
residual leaves or enters the band ±ξ. ``huber_path`` follows these lines, so it gives the exact
solution for every threshold. Wrong labels are the first to leave the band.
"""

# %%
# The path
# --------
# Six of eighty labels are wrong.

import matplotlib.pyplot as plt
import numpy as np

from activehuber import HLRegressor, ThresholdPathDisplay, huber_path

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 6, 80)).reshape(-1, 1)
y = np.sin(X.ravel()) + 0.1 * rng.normal(size=80)
wrong = rng.choice(80, 6, replace=False)
y[wrong] += rng.choice([-1, 1], 6) * rng.uniform(1.0, 2.5, 6)

path = huber_path(X, y, gamma=1.0, alpha=1e-3)
first, last = path.thresholds[[0, -1]]
print(f"{path.n_events} events from ξ = {first:.2f} down to ξ = {last:.4f}")

# %%
# The labels in the order in which they first leave the band, and the wrong ones:

has_left = np.maximum.accumulate(path.states != 0, axis=0)
order = np.argsort(has_left.argmax(axis=0) + len(X) * ~has_left.any(axis=0), kind="stable")
print("first to leave:", sorted(order[: len(wrong)].tolist()))
print("wrong:         ", sorted(wrong.tolist()))

# %%
# At any threshold the path and a fit of its own agree.

model = HLRegressor(gamma=1.0, alpha=1e-3, threshold=0.2).fit(X, y)
dual_coef, intercept = path.at(0.2)
print(f"largest difference at ξ = 0.2: {np.abs(dual_coef - model.dual_coef_).max():.0e}")

# %%
# Residuals along the path
# ------------------------
# Read it from right to left. The dashed line is the threshold that the adaptive rule settles on
# when it may bind labels but not drop them.

kept_all = HLRegressor(gamma=1.0, alpha=1e-3, removal=None).fit(X, y)
display = ThresholdPathDisplay.from_path(path, threshold=kept_all.threshold_)
display.axes_[0].set_title("wrong labels leave the band first")
plt.show()
