"""
Few labels on a Swiss roll
==========================

Fifteen of 600 rows have a label: the position along a rolled-up sheet. Neighbouring turns of
the roll are close in space but far apart along the sheet, and so few labels can hardly show it.
The rows without a label can: a graph of nearest neighbours of all rows keeps the fit smooth
along the sheet. With more labels the graph is worth less.
"""

# %%
# The data
# --------
# NaN marks a row without a label.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_swiss_roll

from activehuber import HLRegressorCV


def make_roll(seed, n_labels):
    """Rows of a roll, the position of each along the sheet, and a few labels."""
    X, position = make_swiss_roll(600, noise=0.2, random_state=seed)
    X, position = X / X.std(axis=0), (position - position.mean()) / position.std()
    labelled = np.random.default_rng(seed).choice(len(X), n_labels, replace=False)
    y = np.full(len(X), np.nan)
    y[labelled] = position[labelled]
    return X, position, y


# %%
# Without and with the graph
# --------------------------
# Both searches choose width and alpha from the few labels. The second may also give the graph
# a weight. Labels are right here, so none is dropped (``removal=None``).


def fit_both(X, y):
    """The fit to labelled rows alone, and the one with the graph of all rows."""
    common = {"kernels": ["rbf"], "removal": None}
    with_graph = HLRegressorCV(**common, manifolds=[0, 1e-4, 1e-3, 1e-2], n_neighbors=6)
    return HLRegressorCV(**common).fit(X, y), with_graph.fit(X, y)


def mean_errors(seed, n_labels):
    """Mean absolute errors of the two on the rows without a label."""
    X, position, y = make_roll(seed, n_labels)
    rest = np.isnan(y)
    return [np.mean(np.abs(m.predict(X) - position)[rest]) for m in fit_both(X, y)]


# %%
# A few labels are a lottery, so there are ten rolls for each number of labels.

numbers = (10, 15, 25)
errors = np.array([[mean_errors(seed, n) for seed in range(10)] for n in numbers])
for n_labels, pairs in zip(numbers, errors, strict=True):
    alone, with_graph = pairs.mean(axis=0)
    better = int((pairs[:, 1] < pairs[:, 0]).sum())
    print(f"{n_labels} labels: mean error {alone:.3f} alone, {with_graph:.3f} with the graph,")
    print(f"           which was better on {better} of 10 rolls")

# %%
# The roll from the front
# -----------------------
# Colour is the position along the sheet; the fifteen labelled rows are large. The roll shown is
# the one with the median gain.

gains = errors[1, :, 0] - errors[1, :, 1]
shown = int(np.argsort(gains)[len(gains) // 2])
X, position, y = make_roll(shown, 15)
alone, with_graph = fit_both(X, y)
panels = {
    "the truth": position,
    f"labelled rows alone: error {errors[1, shown, 0]:.2f}": alone.predict(X),
    f"with the graph: error {errors[1, shown, 1]:.2f}": with_graph.predict(X),
}

fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained")
colours = {"cmap": "viridis", "vmin": position.min(), "vmax": position.max()}
large = {"s": 90, "edgecolor": "k", "lw": 1.2}
labelled = ~np.isnan(y)
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    points = ax.scatter(X[:, 0], X[:, 2], c=values, s=12, **colours)
    ax.scatter(X[labelled, 0], X[labelled, 2], c=y[labelled], **large, **colours)
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.set_title(title, fontsize=10)
fig.colorbar(points, ax=axes, label="position along the sheet", shrink=0.9)
plt.show()

# %%
# How many labels?
# ----------------
# A small mark is a roll, a line the mean of ten.

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
styles = (
    ("labelled rows alone", "#b35806", "s", -0.3),
    ("with the graph", "#2166ac", "o", 0.3),
)
for which, (name, colour, marker, shift) in enumerate(styles):
    for n_labels, pairs in zip(numbers, errors, strict=True):
        at = np.full(len(pairs), n_labels + shift)
        ax.scatter(at, pairs[:, which], s=16, color=colour, marker=marker, alpha=0.5, lw=0)
    mean = errors[:, :, which].mean(axis=1)
    ax.plot(numbers, mean, color=colour, marker=marker, lw=2, label=name)
ax.set(xlabel="labelled rows of 600", ylabel="mean error", xticks=numbers, ylim=(0, None))
ax.legend(loc="upper right")
plt.show()
