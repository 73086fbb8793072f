"""The audit's list is the library's ranking: same numbers, whatever the way there."""

import csv

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from activehuber import HLRegressorCV
from activehuber.cli.app import run
from activehuber.data.datasets import make_corrupted_diabetes
from benchmarks.protocol import UCI, corrupt, uci


def corrupted_table(name, tmp_path):
    """A CSV file with 10 % corrupted labels; X and y as the library has them; the truth."""
    X, y = uci(name)
    rng = np.random.default_rng(7)
    rows = rng.permutation(len(y))[:400]
    X = X[rows]
    given, corrupted = corrupt(y[rows], "mistyped", 0.1, rng)
    path = tmp_path / f"{name}.csv"
    header = ",".join([f"x{j}" for j in range(X.shape[1])] + ["label"])
    np.savetxt(path, np.column_stack([X, given]), delimiter=",", header=header, comments="")
    return path, X, given, corrupted


def listed(folder):
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore:.*labels were removed:UserWarning")
@pytest.mark.parametrize("name", UCI)
def test_the_first_rows_are_those_of_the_library_call(name, tmp_path, data_folder):
    path, X, y, corrupted = corrupted_table(name, tmp_path)
    as_it_is = ["--target-transform", "none"]
    out = ["-o", str(tmp_path / "out")]
    assert run(["audit", str(path), "--target", "label", *as_it_is, *out]) == 0
    lines = listed(tmp_path / "out")
    model = HLRegressorCV().fit(StandardScaler().fit_transform(X), y)
    quality = {int(line["row"]) - 1: float(line["quality"]) for line in lines}
    found = np.array([quality[row] for row in range(len(y))])
    np.testing.assert_allclose(found, model.label_quality_, rtol=1e-3, atol=1e-3)
    k = int(corrupted.sum())
    first = [int(line["row"]) - 1 for line in lines[:k]]
    by_library = np.argsort(model.label_quality_, kind="stable")[:k]
    assert corrupted[first].sum() == corrupted[by_library].sum() >= 0.6 * k


def test_the_bundled_table(tmp_path):
    table = make_corrupted_diabetes()
    path = tmp_path / "diabetes.csv"
    table.frame.to_csv(path, index=False)
    arguments = ["audit", str(path), "--target", "progression", "--id", "patient"]
    assert run([*arguments, "-o", str(tmp_path / "out")]) == 0
    planted = set(table.frame["patient"][table.corrupted])
    first = [line["patient"] for line in listed(tmp_path / "out")[: len(planted)]]
    assert len(planted & set(first)) >= 0.9 * len(planted)
