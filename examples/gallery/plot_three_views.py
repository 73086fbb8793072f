"""
Three views with learnt weights
===============================

Columns of a table often come in groups: two instruments, or shape and texture. Here three
views have kernels of their own, and the fit learns how much each is worth. The third view is
noise and should get nothing.
"""

# %%
# Three groups of columns
# -----------------------
# The target is linear in the first group, a wave in the second, and knows nothing of the third.
# One label in ten is wrong.

import matplotlib.pyplot as plt
import numpy as np

from activehuber import HLRegressor, View, ViewDisplay

rng = np.random.default_rng(0)
n_rows = 300
X = rng.normal(size=(n_rows, 7))
signal = X[:, :3] @ [0.8, -0.5, 0.3] + np.sin(2 * X[:, 3]) * np.cos(X[:, 4])
y = signal + 0.1 * rng.normal(size=n_rows)
is_wrong = np.zeros(n_rows, dtype=bool)
is_wrong[rng.choice(n_rows, 30, replace=False)] = True
y[is_wrong] += rng.choice([-1, 1], 30) * rng.uniform(3, 6, 30)

views = [
    View(slice(0, 3), "linear", name="linear"),
    View(slice(3, 5), "rbf", name="wave"),
    View(slice(5, 7), "rbf", name="noise"),
]

# %%
# Weights
# -------
# ``view_weights="learn"`` looks for the weights with the lowest objective.
# ``view_weights_residual_`` is how far from the best they are, so it should be tiny.

uniform = HLRegressor(views=views, alpha=1e-3).fit(X, y)
learnt = HLRegressor(views=views, alpha=1e-3, view_weights="learn").fit(X, y)

fresh = rng.normal(size=(2000, 7))
fresh_signal = fresh[:, :3] @ [0.8, -0.5, 0.3] + np.sin(2 * fresh[:, 3]) * np.cos(fresh[:, 4])
for name, model in (("uniform", uniform), ("learnt", learnt)):
    error = np.mean(np.abs(model.predict(fresh) - fresh_signal))
    print(f"{name}: weights {model.view_weights_.round(3)}, mean error {error:.3f}")
print(f"residual of the learnt weights: {learnt.view_weights_residual_:.0e}")
print(f"wrong labels found: {(learnt.removed_ & is_wrong).sum()} of {is_wrong.sum()}")

# %%
# What each view adds
# -------------------
# The parts of the views and the intercept sum to the prediction.

ViewDisplay.from_estimator(learnt, fresh[:300])
plt.show()
