"""Run by `make wheel-test` where the package and one extra are all that is installed.

python tests/smoke.py [core | plot | cli | peers | crowd | oracle | dask | paper]
"""

import csv
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

from activehuber import HLRegressor, LabelledKFold, LabelQualityDisplay

# What extras and tests bring; importing the package must not bring any of it.
EXTRAS = {
    "cleanlab", "clarabel", "cv2", "cvxpy", "dask", "distributed", "matplotlib", "osqp",
    "pandas", "polars", "psutil", "pyarrow", "rich", "skimage", "typer",
}  # fmt: skip
# Importing the package takes at most so many times what the nearest of scikit-learn takes.
MOST_IMPORT_TIME = 1.3
IMPORT_RUNS = 7


def make_data():
    """A sine; labels 0 to 19 are wrong, those from 150 on are missing."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(200, 1))
    y = np.sin(X.ravel()) + 0.1 * rng.normal(size=200)
    y[:20] += 4
    y[150:] = np.nan
    return X, y


def core():
    X, y = make_data()
    model = HLRegressor().fit(X, y)
    assert np.flatnonzero(model.removed_).tolist() == list(range(20)), model.removed_
    assert model.duality_gap_ < 1e-9 and model.kkt_residual_ < 1e-8
    assert sum(1 for _ in LabelledKFold(3).split(X, y)) == 3
    check_import_time()


def check_modules():
    """Importing brings no extra but those that scikit-learn loads wherever it finds them."""
    theirs = in_python("import sys, sklearn.model_selection; print(*sys.modules)").split()
    ours = in_python("import sys, activehuber; print(*sys.modules)").split()
    brought = EXTRAS & set(ours) - set(theirs)
    assert not brought, brought


def check_import_time():
    """Importing is quick, each time in a process of its own."""
    names = ("sklearn.kernel_ridge", "activehuber")
    for name in names:
        in_python(f"import {name}")  # from now on its files are compiled and in memory
    times = {name: [] for name in names}
    for _ in range(IMPORT_RUNS):
        for name in names:
            # CPU time: on a busy machine the clock on the wall says nothing.
            code = f"import time; t = time.process_time(); import {name}"
            times[name].append(float(in_python(f"{code}; print(time.process_time() - t)")))
    theirs, ours = (statistics.median(times[name]) for name in names)
    print(f"import {ours:.2f} s, {ours / theirs:.2f} of the time of sklearn.kernel_ridge")
    assert ours < MOST_IMPORT_TIME * theirs, times


def in_python(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def plot():
    import matplotlib

    matplotlib.use("Agg")
    display = LabelQualityDisplay.from_estimator(HLRegressor().fit(*make_data()))
    display.figure_.savefig("quality.png")
    assert Path("quality.png").stat().st_size > 10_000


def cli():
    X, y = make_data()
    with Path("data.csv").open("w", newline="") as file:
        labels = ["" if np.isnan(label) else label for label in y]
        csv.writer(file).writerows([("x", "y"), *zip(X[:, 0], labels, strict=True)])
    command("audit", "data.csv", "--target", "y", "-o", "out")
    with Path("out/labels.csv").open(newline="") as file:
        worst = [label for label in csv.DictReader(file)][:20]
    assert sorted(int(label["row"]) for label in worst) == list(range(1, 21)), worst
    assert "<html" in Path("out/report.html").read_text()
    command("predict", "out/model.skops", "data.csv", "-o", "predictions.csv")
    assert len(Path("predictions.csv").read_text().splitlines()) == 201


def command(*arguments):
    """Run the command that was installed with the package."""
    name = "activehuber.exe" if os.name == "nt" else "activehuber"
    script = Path(sysconfig.get_path("scripts")) / name
    done = subprocess.run([script, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def peers():
    from cleanlab.regression.learn import CleanLearning

    X, y = make_data()
    X, y = X[:150], y[:150]
    ours = HLRegressor(threshold=np.inf, alpha=1e-3)
    issues = CleanLearning(ours, seed=0).find_label_issues(X, y)
    worst = np.argsort(issues["label_quality"].to_numpy())[:20]
    assert np.mean(worst < 20) > 0.9, worst


def crowd():
    from activehuber.crowd.background import find_backgrounds, with_level
    from activehuber.crowd.counter import fit_counter
    from activehuber.crowd.features import describe_frames
    from activehuber.crowd.frames import open_frames, write_images
    from activehuber.crowd.scene import make_scene
    from activehuber.crowd.synthetic import synthetic_camera

    def quiet(done, total):
        del done, total

    clip = synthetic_camera(60, people=(2, 12), random_state=0)
    write_images(Path("frames"), clip.images())
    frames = open_frames(Path("frames"))
    scene = make_scene(frames.height, frames.width)
    backgrounds = find_backgrounds(frames, scene, quiet)
    scene = with_level(frames, scene, backgrounds)
    described = describe_frames(frames, scene, backgrounds, quiet)
    counts = clip.counts.copy()
    counts[1::2] = np.nan
    counter = fit_counter(described, scene, counts[:, None], ("count",))
    error = np.abs(counter.count(described, scene)["count"] - clip.counts)[1::2].mean()
    assert error < 1.5, error


def oracle():
    import cvxpy as cp

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_t(2, 40)
    model = HLRegressor(kernel="linear", alpha=1e-2, threshold=0.2).fit(X, y)
    for solver in (cp.CLARABEL, cp.OSQP):
        slope, intercept = cp.Variable(3), cp.Variable()
        # CVXPY's Huber loss is twice ours.
        loss = cp.sum(cp.huber(y - X @ slope - intercept, 0.2)) / (2 * len(y))
        problem = cp.Problem(cp.Minimize(loss + 1e-2 * cp.sum_squares(slope)))
        problem.solve(solver=solver)
        assert abs(problem.value - model.objective_) < 1e-4 * model.objective_, solver


def dask():
    import dask.array as da
    from distributed import Client, LocalCluster

    X, y = make_data()
    model = HLRegressor(approximation="nystrom", n_components=50, random_state=0)
    expected = model.fit(X, y).predict(X)
    quiet = {"dashboard_address": ":0", "silence_logs": 50}
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, **quiet) as cluster,
        Client(cluster),
    ):
        rows, labels = da.from_array(X, chunks=(70, 1)), da.from_array(y, chunks=70)
        found = model.fit(rows, labels).predict(rows)
        assert isinstance(found, da.Array), type(found)
        np.testing.assert_allclose(found.compute(), expected, atol=1e-8)


SMOKE = {
    "core": core, "plot": plot, "cli": cli, "peers": peers, "crowd": crowd, "oracle": oracle,
    "dask": dask,
}  # fmt: skip


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "core"
    if name not in SMOKE:
        sys.exit(f"there is no smoke test of {name!r}; write one in {__file__}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_modules()
        SMOKE[name]()
        os.chdir("/")  # a folder in use cannot be removed everywhere
    print(f"smoke test passed: {name}")


if __name__ == "__main__":
    main()
