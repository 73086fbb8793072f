"""Model files: what comes back is what went in, and nothing foreign is ever run."""

import io
import json
import os
import pickle
import tracemalloc
import zipfile
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from activehuber import HLRegressor, View
from activehuber.audit import audit, choice
from activehuber.persistence import archive
from activehuber.persistence.model_files import (
    FORMAT,
    HEAD,
    MODEL,
    REGRESSOR,
    Model,
    load_model,
    model_bytes,
    read_state,
    regressor_of,
    regressor_state,
    save_model,
    state_bytes,
)
from activehuber.persistence.schema import record
from activehuber.runtime.messages import TableError
from tests.audit.test_table import Quick, make_table
from tests.fuzzing import model_files
from tests.fuzzing.model_files import repacked


def model_of(found):
    return Model(found.model, "y", None, 0.9)


@pytest.fixture
def found(rng):
    return audit(*make_table(rng), estimator=Quick())


@pytest.fixture
def path(found, tmp_path):
    save_model(model_of(found), tmp_path / "m.skops")
    return tmp_path / "m.skops"


def test_regressor_round_trip(found, path, rng):
    X, _ = make_table(rng)
    model, again = found.model, load_model(path)
    np.testing.assert_array_equal(again.pipeline.predict(X), model.predict(X))
    first, second = model.named_steps["estimator"], again.estimator
    features = again.features.transform(X)
    np.testing.assert_array_equal(
        first.predict_interval(features, coverage=0.8),
        second.predict_interval(features, coverage=0.8),
    )
    for name in ("removed_", "label_quality_", "loo_residuals_", "residuals_", "dual_coef_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for name in ("scale_", "threshold_", "duality_gap_", "kkt_residual_", "intercept_"):
        assert getattr(first, name) == getattr(second, name)
    assert (again.target, again.id_column, again.coverage) == ("y", None, 0.9)
    np.testing.assert_array_equal(
        first.threshold_path().thresholds, second.threshold_path().thresholds
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifier_round_trip(rng, tmp_path, n_classes):
    own = np.arange(60) % n_classes
    X = rng.normal(size=(60, 3)) + 3.0 * np.eye(3)[own]
    y = np.array(["red", "green", "blue"])[own]
    found = audit(X, y, classify=True, estimator=Quick(classify=True))
    save_model(model_of(found), tmp_path / "m.skops")
    again = load_model(tmp_path / "m.skops")
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    assert again.pipeline.predict(frame).tolist() == found.model.predict(frame).tolist()
    np.testing.assert_array_equal(
        again.pipeline.predict_proba(frame), found.model.predict_proba(frame)
    )


def test_views_round_trip(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "_chooser", lambda options, views: Quick(views=views))
    X, y = make_table(rng)
    views = [View(["size"], "linear"), View(["town", "day"], "rbf", gamma=0.3, name="rest")]
    found = audit(X, y, views=views)
    save_model(model_of(found), tmp_path / "m.skops")
    again = load_model(tmp_path / "m.skops")
    np.testing.assert_array_equal(again.pipeline.predict(X), found.model.predict(X))


@pytest.mark.parametrize("approximation", ["nystrom", "fourier", "linear"])
def test_approximated_round_trip(rng, tmp_path, approximation):
    X, y = rng.normal(size=(80, 3)), rng.normal(size=(80, 2))
    y[:5, 0] = np.nan
    views = [View([0, 1]), View([2], "laplacian")]
    model = HLRegressor(
        approximation=approximation, n_components=20, random_state=1, views=views, alpha=0.1
    ).fit(X, y)
    rule = record(model=REGRESSOR)
    content = state_bytes(FORMAT, {"model": regressor_state(model)}, rule)
    (tmp_path / "m.skops").write_bytes(content)
    again = regressor_of(read_state(tmp_path / "m.skops", FORMAT, rule)["model"])
    new = rng.normal(size=(9, 3))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(again.predict_interval(new), model.predict_interval(new))
    for name in ("removed_", "label_quality_", "coef_", "duality_gap_", "scale_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))


def test_only_plain_values_are_in_the_file(path):
    with zipfile.ZipFile(path) as archive:
        assert set(json.loads(archive.read("values.json"))) == {
            *HEAD,
            "target",
            "id",
            "coverage",
            "features",
            "regressor",
            "classifier",
            "target_scale",
        }
        arrays = [name for name in archive.namelist() if name != "values.json"]
        assert len(arrays) > 5
        for name in arrays:
            assert np.load(io.BytesIO(archive.read(name))).dtype.kind in "biufU"


def test_the_same_model_gives_the_same_bytes(path):
    model = load_model(path)
    assert model_bytes(model) == model_bytes(load_model(path)) == path.read_bytes()


class Evil:
    """Runs a command when unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_a_pickle_is_refused_and_not_run(tmp_path):
    mark = tmp_path / "ran"
    content = pickle.dumps(Evil(mark))
    (tmp_path / "m.skops").write_bytes(content)
    with pytest.raises(TableError, match="no model file of activehuber"):
        load_model(tmp_path / "m.skops")
    assert not mark.exists()
    pickle.loads(content)  # it would have
    assert mark.exists()


@pytest.mark.parametrize(
    "bad",
    [
        {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"},
        {"__reduce__": ["os.system", ["false"]]},
        {"py/object": "os.system"},
    ],
)
def test_values_that_name_code_are_refused(path, bad):
    for where in ("regressor", "features", "target", "__class__"):
        target = path.with_name("bad.skops")
        rewrite(path, target, {**values_of(path), where: bad})
        with pytest.raises(TableError, match=r"bad\.skops is damaged: "):
            load_model(target)


def values_of(path):
    """The text of a file, parsed."""
    return json.loads(zipfile.ZipFile(path).read("values.json"))


def rewrite(source, target, values):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if name != "values.json":
                new.writestr(name, old.read(name))
        new.writestr("values.json", values if isinstance(values, str) else json.dumps(values))


def test_an_array_of_pickled_objects_is_not_unpickled(path, tmp_path):
    mark = tmp_path / "ran"
    buffer = io.BytesIO()
    np.save(buffer, np.array([Evil(mark)], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "bad.skops", "w") as new:
        for name in old.namelist():
            content = buffer.getvalue() if name.endswith(".npy") else old.read(name)
            new.writestr(name, content)
    with pytest.raises(TableError, match="is damaged"):
        load_model(tmp_path / "bad.skops")
    assert not mark.exists()


def test_truncated_anywhere(path, tmp_path, rng):
    content = path.read_bytes()
    for length in [0, 1, 100, *rng.integers(0, len(content) - 1, 30)]:
        (tmp_path / "short.skops").write_bytes(content[: int(length)])
        with pytest.raises(TableError):
            load_model(tmp_path / "short.skops")


def test_bits_flipped_anywhere(path, tmp_path, rng):
    """Refused, or harmless (a flip in a name or a date of the archive)."""
    content = path.read_bytes()
    refused = 0
    for place in rng.integers(0, len(content), 60):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "bits.skops").write_bytes(bytes(changed))
        try:
            load_model(tmp_path / "bits.skops")
        except TableError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 30


def test_another_format_version(path, tmp_path):
    for change, message in (
        ({"version": 99}, "has format 99, but this version"),
        ({"format": "other"}, "no model for activehuber predict"),
        ({"format": ["other"]}, "no model for activehuber predict"),
        ({"format": "activehuber crowd model"}, "one for activehuber crowd count"),
        ({"regressor": {}}, "is damaged"),
        ({"features": None}, "is damaged"),
    ):
        rewrite(path, tmp_path / "other.skops", {**values_of(path), **change})
        with pytest.raises(TableError, match=message):
            load_model(tmp_path / "other.skops")


def test_a_file_of_skops_is_refused_in_one_line(tmp_path):
    """As model files were before format 7."""
    (tmp_path / "m.skops").write_bytes(repacked({"schema.json": b"{}", "0.npy": b""}))
    with pytest.raises(
        TableError, match=r"^m\.skops is no model file of this [^\n]*earlier one"
    ):
        load_model(tmp_path / "m.skops")
    with pytest.raises(TableError, match="no such file"):
        load_model(tmp_path / "none.skops")
    with pytest.raises(TableError, match="is a directory"):
        load_model(tmp_path)


def test_what_cannot_be_saved_says_so(found, rng):
    model = HLRegressor(kernel=lambda x, z: float(x @ z)).fit(
        rng.normal(size=(10, 2)), np.arange(10.0)
    )
    found.model.steps[-1] = ("estimator", model)
    with pytest.raises(TableError, match=r"saved: model\.regressor\.params\.kernel must be"):
        model_bytes(model_of(found))


# --- files that ask for too much, or are not what they say ------------------------------


@pytest.fixture
def state(path):
    found = read_state(path, FORMAT, MODEL)
    return {key: value for key, value in found.items() if key not in HEAD}


@contextmanager
def little_memory(most=2**26):
    """Fails if Python or NumPy took more on the way; importing is not counted."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def anything(value, where, sizes):
    """A rule that all values keep."""


def refused(tmp_path, content, match):
    target = tmp_path / "bad.skops"
    target.write_bytes(content)
    with little_memory(), pytest.raises(TableError, match=match) as caught:
        load_model(target)
    assert str(caught.value).startswith("bad.skops ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("size", "message"),
    [(2 * 10**7, "text is far too long"), (6 * 10**6, "far too many values")],
)
def test_text_is_measured_before_it_is_parsed(path, tmp_path, size, message):
    """A hundred times as much memory as the file has bytes, were it parsed."""
    long = json.dumps(values_of(path))[:-1] + ', "more": [' + "[]," * size + "0]}"
    rewrite(path, tmp_path / "long.skops", long)
    refused(tmp_path, (tmp_path / "long.skops").read_bytes(), message)


def test_an_array_is_not_read_unless_its_shape_fits(state, tmp_path):
    state["regressor"]["fitted"][0]["thresholds"] = np.zeros(2**25)
    content = state_bytes(FORMAT, state, anything)
    assert len(content) < 2**21
    refused(tmp_path, content, r"thresholds must be an array .* got an array of float64")


def test_landmarks_must_be_those_of_the_coefficients(rng, tmp_path):
    """Their kernel matrix, 7 GiB for so many, is not built even if they are."""
    X = np.linspace(0, 6, 60).reshape(-1, 1)
    model = HLRegressor(approximation="nystrom", n_components=9, random_state=0, gamma=1.0)
    state = {"model": regressor_state(model.fit(X, np.sin(X.ravel())))}
    rule = record(model=REGRESSOR)
    many = state["model"]["basis"][0]["rows"] = np.linspace(0, 6, 30_000).reshape(-1, 1)
    (tmp_path / "m.skops").write_bytes(state_bytes(FORMAT, state, anything))
    with little_memory(), pytest.raises(TableError, match="coefficients must be an array"):
        read_state(tmp_path / "m.skops", FORMAT, rule)
    state["model"]["fitted"][0]["coefficients"] = np.full(len(many), 1e-5)
    (tmp_path / "m.skops").write_bytes(state_bytes(FORMAT, state, rule))
    with little_memory():
        again = regressor_of(read_state(tmp_path / "m.skops", FORMAT, rule)["model"])
        expected = 1e-5 * np.exp(-((many - 3.0) ** 2)).sum() + again.intercept_
        np.testing.assert_allclose(again.predict([[3.0]]), expected)


def test_a_model_that_does_not_fit_into_memory(path, monkeypatch):
    size = sum(part.file_size for part in zipfile.ZipFile(path).infolist())
    monkeypatch.setattr(archive, "available_memory", lambda: 0.5 * size)
    with pytest.raises(TableError, match=r"m\.skops needs more memory than there is"):
        load_model(path)


def test_sizes_that_the_archive_claims_are_not_believed(path, tmp_path):
    """A part whose size in the directory and in its own header is far more than it has."""
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    header = io.BytesIO()
    said = {"descr": "<f8", "fortran_order": False, "shape": (2**31,)}
    np.lib.format.write_array_header_1_0(header, said)
    short = header.getvalue() + bytes(80)
    refused(tmp_path, repacked(parts | {"0.npy": short}), "has not the size that its shape")
    refused(tmp_path, repacked(parts | {"1.npy": parts["1.npy"] + b"0"}), "has not the size")
    refused(tmp_path, repacked(parts, zipfile.ZIP_LZMA), "no model file of activehuber")
    refused(tmp_path, repacked(parts | {"more": b""}), "no model file of activehuber")


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("coverage", 10**400, "too many digits"),
        ("coverage", 1.0, "coverage must be a number from"),
        ("regressor.params.alpha", "loo", "alpha must be a number above 0, got 'loo'"),
        ("regressor.params.kernel", "precomputed", "kernel must be one of"),
        ("regressor.params.random_state", -1, "random_state must be a whole number"),
        ("regressor.fitted", [], "fitted must be a list of 1, got a list of 0"),
        ("regressor.X", np.zeros((2, 2)), "X must be an array .* of shape"),
        ("regressor.several", 1, "several must be true or false, got 1"),
        (
            "regressor.weights",
            np.full(120, np.nan),
            "weights holds numbers that are not finite",
        ),
        ("features.kinds", ["number"], "kinds must be a list of 4, got a list of 1"),
        ("features.gaps", None, "gaps must be an array of kind b"),
        ("target", "\ud800", "target must be text"),
    ],
)
def test_values_that_are_not_what_they_must_be(state, tmp_path, where, value, message):
    *outer, last = where.split(".")
    inner = state
    for key in outer:
        inner = inner[key]
    assert last in inner
    inner[last] = value
    refused(tmp_path, state_bytes(FORMAT, state, anything), message)


def test_predictions_that_overflow_are_refused(state, tmp_path):
    state["regressor"]["params"]["kernel"] = "linear"
    state["regressor"]["X"][:] = 1e200
    state["regressor"]["fitted"][0]["coefficients"][:] = 1e200
    (tmp_path / "m.skops").write_bytes(state_bytes(FORMAT, state, MODEL))
    model = load_model(tmp_path / "m.skops").estimator
    with pytest.raises(ValueError, match="predictions overflow"):
        model.predict(np.ones((3, model.n_features_in_)))


def test_corrupted_files():
    """Some of those that `python -m tests.fuzzing.model_files` tries."""
    found = model_files.run(200, 0)
    assert found.total() == 200 and found["accepted"] > 20
    assert sum(count for reason, count in found.items() if "refused" in reason) > 100
