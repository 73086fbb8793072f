"""
More rows than a matrix holds
=============================

An exact fit keeps a matrix of n × n numbers, which ends at some 20,000 rows. With
``approximation="nystrom"`` the kernel at some of the rows stands for all of it, and the rows
are worked on in blocks. Thresholds, removed labels and the certificate stay as they are; the
certificate is that of the approximated problem.
"""

# %%
# Fifty thousand readings of a surface
# ------------------------------------
# One label in ten is wrong.

import matplotlib.pyplot as plt
import numpy as np

from activehuber import HLRegressor


def surface(X):
    """The truth."""
    return np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.5 * np.sin(5 * X[:, 0] * X[:, 1])


rng = np.random.default_rng(0)
n_rows = 50_000
X = rng.uniform(-2, 2, size=(n_rows, 2))
y = surface(X) + 0.2 * rng.normal(size=n_rows)
is_wrong = rng.uniform(size=n_rows) < 0.1
n_wrong = int(is_wrong.sum())
y[is_wrong] += rng.choice([-1, 1], n_wrong) * rng.uniform(2, 5, n_wrong)
X_test = rng.uniform(-2, 2, size=(5_000, 2))


def mean_error(model):
    """Mean absolute distance from the true surface at fresh rows."""
    return np.mean(np.abs(model.predict(X_test) - surface(X_test)))


# %%
# How many components?
# --------------------
# More of them are slower and closer to the exact fit. For comparison: the exact fit to 2,000 of
# the rows.

common = {"gamma": 4.0, "alpha": 1e-6}
numbers = (50, 100, 200, 400)
models = [
    HLRegressor(**common, approximation="nystrom", n_components=n, random_state=0).fit(X, y)
    for n in numbers
]
errors = [mean_error(model) for model in models]
few_rows = mean_error(HLRegressor(**common).fit(X[:2_000], y[:2_000]))
for n_components, model, error in zip(numbers, models, errors, strict=True):
    found = int((model.removed_ & is_wrong).sum())
    print(
        f"{n_components:3d} components: error {error:.3f}, wrong labels found {found}", end=" "
    )
    print(f"of {n_wrong}, right ones dropped {model.removed_.sum() - found}")
print(f"exact fit to 2,000 rows: error {few_rows:.3f}")
print(f"duality gap with {numbers[-1]} components: {models[-1].duality_gap_:.0e}")

# %%
# Too few components cannot follow the surface, and right labels are dropped for it: look at the
# error before the list of removed labels.
#
# The surface
# -----------

across, up = np.meshgrid(np.linspace(-2, 2, 160), np.linspace(-2, 2, 160))
grid = np.column_stack([across.ravel(), up.ravel()])
fig, axes = plt.subplots(1, 3, figsize=(11.5, 3.7), layout="constrained")
colours = {"cmap": "viridis", "vmin": -1.6, "vmax": 1.6}
some = slice(0, 6_000)
axes[0].scatter(*X[some].T, c=y[some], s=3, lw=0, **colours)
axes[0].set_title("6,000 of the 50,000 labels as given")
image = axes[1].pcolormesh(
    across, up, models[-1].predict(grid).reshape(across.shape), rasterized=True, **colours
)
axes[1].set_title(f"the fit with {numbers[-1]} components")
for ax in axes[:2]:
    ax.set(aspect="equal", xlim=(-2, 2), ylim=(-2, 2), xticks=[], yticks=[])
fig.colorbar(image, ax=axes[1], extend="both")
axes[2].loglog(numbers, errors, "o-", color="#2166ac", label="all rows, approximated")
axes[2].axhline(few_rows, color="#b35806", ls="--", label="2,000 rows, exact")
axes[2].set_xticks(numbers, [str(n) for n in numbers])
axes[2].set_xticks([], minor=True)
marks = (0.03, 0.1, 0.3)
axes[2].set_yticks(marks, [str(mark) for mark in marks])
axes[2].set_yticks([], minor=True)
axes[2].set(xlabel="components", title="mean error on fresh rows")
axes[2].legend(loc="lower left", fontsize=8)
plt.show()
