"""
Classes with flipped labels
===========================

Forty per cent of the positives were marked negative, as happens where a class is easily
overlooked. Flips that are this many and this one-sided move the boundary, and no single label
looks wrong. ``HLClassifier`` is given the rates of the flips and moves its cut back.
"""

# %%
# Two moons, one of them overlooked
# ---------------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from activehuber import HLClassifier


def corrupted_moons(n_rows, seed):
    """Two moons, their true classes, and labels with 40 % of the positives flipped."""
    X, truth = make_moons(n_rows, noise=0.25, random_state=seed)
    flipped = (truth == 1) & (np.random.default_rng(seed).uniform(size=n_rows) < 0.4)
    return X, truth, np.where(flipped, 0, truth)


X, truth, y = corrupted_moons(400, seed=0)
X_test, truth_test, _ = corrupted_moons(4000, seed=1)
print(f"{(y != truth).sum()} of {len(y)} labels are flipped")

# %%
# Three fits
# ----------
# ``noise_rates`` is (P(marked negative | positive), P(marked positive | negative)). Without it
# ``HLClassifier`` is of no help here, and behind the support vector machine: it aims at the
# labels as they are marked.

rates = (0.4, 0.0)
models = {
    "support vector machine": SVC(gamma=1.0),
    "HLClassifier()": HLClassifier(gamma=1.0, alpha=1e-2),
    "HLClassifier(noise_rates=(0.4, 0))": HLClassifier(
        gamma=1.0, alpha=1e-2, noise_rates=rates
    ),
}
for name, model in models.items():
    accuracy = np.mean(model.fit(X, y).predict(X_test) == truth_test)
    print(f"{name}: {accuracy:.1%} of clean test labels")

# %%
# Where they draw the line
# ------------------------
# The shaded region is where the model says "positive".

fig, axes = plt.subplots(1, 3, figsize=(11, 4.1), layout="constrained", sharey=True)
across, up = np.meshgrid(np.linspace(-1.8, 2.8, 200), np.linspace(-1.4, 1.9, 160))
grid = np.column_stack([across.ravel(), up.ravel()])
flipped = y != truth
for ax, (name, model) in zip(axes, models.items(), strict=True):
    region = model.predict(grid).reshape(across.shape)
    ax.contourf(across, up, region, levels=[0.5, 1.5], colors=["#b35806"], alpha=0.18)
    ax.contour(across, up, region, levels=[0.5], colors="0.2", linewidths=1.2)
    for which, colour, label in ((0, "#2166ac", "negative"), (1, "#b35806", "positive")):
        rows = (truth == which) & ~flipped
        ax.scatter(*X[rows].T, s=12, color=colour, alpha=0.7, label=label)
    name_of_flips = "positive, but marked negative"
    ax.scatter(*X[flipped].T, s=22, marker="x", color="k", lw=0.9, label=name_of_flips)
    ax.set(xticks=[], yticks=[])
    share = np.mean(model.predict(X_test) == truth_test)
    ax.set_title(f"{name}\n{share:.1%} right", fontsize=9.5)
handles, names = axes[0].get_legend_handles_labels()
fig.legend(handles, names, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
plt.show()
