"""Fit a curve whose labels are partly wrong and partly missing, and draw what happened.

python examples/noisy_curve.py --output demo
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from activehuber import HLRegressor


def make_data(n: int = 200, seed: int = 0):
    """A sine with noise; 15 % of labels are wrong, half of the rows have none."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-4, 4, n))
    truth = np.sin(1.5 * x) + 0.3 * x
    y = truth + 0.1 * rng.normal(size=n)
    wrong = np.zeros(n, dtype=bool)
    wrong[rng.permutation(n)[: int(0.15 * n)]] = True
    y[wrong] = rng.uniform(-2.5, 4.0, wrong.sum())
    y[rng.permutation(n)[: n // 2]] = np.nan
    return x.reshape(-1, 1), y, wrong & ~np.isnan(y), truth


def draw(x, y, truth, wrong, model, ridge, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    line = np.linspace(-4, 4, 400).reshape(-1, 1)
    fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    removed = model.removed_
    kept = ~removed & ~np.isnan(y)
    ax.plot(x, truth, color="0.75", lw=5, label="truth")
    ax.plot(
        line, ridge.predict(line), color="#b2182b", ls="--", label="kernel ridge, all labels"
    )
    ax.plot(line, model.predict(line), color="#2166ac", lw=2, label="activehuber")
    ax.scatter(x[kept], y[kept], s=22, color="#2166ac", alpha=0.7, label="labels kept")
    ax.scatter(
        x[removed], y[removed], s=50, marker="x", color="#b2182b", label="labels flagged"
    )
    missed = wrong & kept
    if missed.any():
        ax.scatter(
            x[missed], y[missed], s=90, facecolor="none", edgecolor="k", label="wrong, but kept"
        )
    ax.plot(
        x[np.isnan(y)],
        np.full(np.isnan(y).sum(), -2.9),
        "|",
        color="0.5",
        label="rows without label",
    )
    given = np.count_nonzero(~np.isnan(y))
    title = f"{len(y) - given} of {len(y)} labels missing, {wrong.sum()} of the others wrong"
    ax.set_ylim(-3.2, 5.4)  # room for the legend above the highest label
    ax.set(xlabel="x", ylabel="y", title=title)
    ax.legend(loc="upper left", ncols=2, fontsize=8, framealpha=0.9)
    fig.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("demo"))
    folder = parser.parse_args().output
    x, y, wrong, truth = make_data()
    model = HLRegressor(kernel="rbf", gamma=1.0, alpha=1e-4, manifold=1e-6).fit(x, y)
    ridge = HLRegressor(kernel="rbf", gamma=1.0, alpha=1e-4, threshold=np.inf).fit(x, y)

    found = model.removed_ & wrong
    print(
        f"rows {len(y)}, labels {np.count_nonzero(~np.isnan(y))}, of which wrong {wrong.sum()}"
    )
    print(f"flagged {model.removed_.sum()}, of which really wrong {found.sum()}")
    print(f"threshold {model.threshold_:.3f}, noise scale {model.scale_:.3f} (true 0.100)")
    print(f"certificate: duality gap {model.duality_gap_:.1e}, KKT {model.kkt_residual_:.1e}")
    for name, fit in (("kernel ridge", ridge), ("activehuber", model)):
        error = np.mean(np.abs(fit.predict(x) - truth))
        print(f"mean error of {name}: {error:.3f}")
    worst = np.argsort(np.where(np.isnan(y), 1.0, model.label_quality_))[:5]
    print("\nthe five worst labels\n  row  given  expected  quality")
    for row in worst:
        expected = y[row] - model.loo_residuals_[row]
        print(f"  {row:3d}  {y[row]:5.2f}  {expected:8.2f}  {model.label_quality_[row]:7.3f}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "noisy_curve.png"
    draw(x, y, truth, wrong, model, ridge, path)
    print(f"\nfigure: {path}")


if __name__ == "__main__":
    main()
