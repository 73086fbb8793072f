"""
A curve with wrong and missing labels
=====================================

Half of the rows have no label, and some of the given labels are wrong. The adaptive threshold
finds the wrong ones without being told how many there are or how large the noise is. Kernel
ridge, which trusts every label, is drawn beside it.
"""

# %%
# The data
# --------
# A wave with noise of standard deviation 0.1. A wrong label is any number at all, so some of
# them lie close to the truth and cannot be told from right ones.

import matplotlib.pyplot as plt
import numpy as np

from activehuber import HLRegressor

rng = np.random.default_rng(0)
n_rows = 200
x = np.sort(rng.uniform(-4, 4, n_rows))
truth = np.sin(1.5 * x) + 0.3 * x
y = truth + 0.1 * rng.normal(size=n_rows)
is_wrong = np.zeros(n_rows, dtype=bool)
is_wrong[rng.permutation(n_rows)[:30]] = True
y[is_wrong] = rng.uniform(-2.5, 4.0, 30)
y[rng.permutation(n_rows)[: n_rows // 2]] = np.nan
has_label = ~np.isnan(y)
is_wrong &= has_label
X = x.reshape(-1, 1)
print(f"{has_label.sum()} labels, {is_wrong.sum()} of them wrong")

# %%
# Two fits
# --------
# An infinite threshold turns the Huber loss into least squares: that is kernel ridge.

robust = HLRegressor(gamma=1.0, alpha=1e-4).fit(X, y)
ridge = HLRegressor(gamma=1.0, alpha=1e-4, threshold=np.inf).fit(X, y)

found = robust.removed_ & is_wrong
print(f"flagged: {robust.removed_.sum()}, of which wrong: {found.sum()}")
print(f"noise scale: {robust.scale_:.3f} (true: 0.100)")
print(f"duality gap: {robust.duality_gap_:.0e}")
for name, model in (("kernel ridge", ridge), ("activehuber", robust)):
    print(f"mean error of {name}: {np.mean(np.abs(model.predict(X) - truth)):.3f}")

# %%
# The picture
# -----------
# A wrong label that was kept has a ring. It lies near the curve, where it does little harm.

kept = has_label & ~robust.removed_
missed = kept & is_wrong
grid = np.linspace(-4, 4, 400).reshape(-1, 1)

fig, ax = plt.subplots(figsize=(9.5, 4.5), layout="constrained")
ax.plot(x, truth, color="0.78", lw=6, label="truth")
ax.plot(grid, ridge.predict(grid), color="#b35806", ls="--", label="kernel ridge, all labels")
ax.plot(grid, robust.predict(grid), color="#2166ac", lw=2, label="activehuber")
ax.scatter(x[kept], y[kept], s=20, color="#2166ac", alpha=0.7, label="label kept")
removed = robust.removed_
ax.scatter(x[removed], y[removed], s=45, marker="x", color="#b35806", label="flagged")
if missed.any():
    ring = {"facecolor": "none", "edgecolor": "k"}
    ax.scatter(x[missed], y[missed], s=90, **ring, label="wrong, but kept")
unlabelled = x[~has_label]
ax.plot(unlabelled, np.full(len(unlabelled), -2.9), "|", color="0.5", label="row without label")
ax.set(xlabel="x", ylabel="y", ylim=(-3.2, 4.2))
ax.set_title(f"{removed.sum()} of {has_label.sum()} labels are flagged")
ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
plt.show()
