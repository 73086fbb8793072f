"""Thousands of broken model files: loaded and of use, or refused in one clear line.

`run(n, seed)` starts from valid models of every kind and spoils their values, arrays, text and
archives. It works in a process of its own that may take only so much memory.
`python -m tests.fuzzing.model_files 5000 0` does the same; a third number tries one case alone.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from activehuber import HLClassifier, HLRegressor, HLRegressorCV, View
from activehuber.crowd import model as crowd
from activehuber.crowd.counter import fit_counter
from activehuber.crowd.features import Described
from activehuber.crowd.scene import Scene
from activehuber.data.encoding import TableFeatures
from activehuber.persistence.archive import pack
from activehuber.persistence.model_files import (
    CROWD_FORMAT,
    FORMAT,
    MODEL,
    Model,
    load_model,
    model_bytes,
    read_state,
)
from activehuber.runtime.messages import TableError

ROOT = Path(__file__).parents[2]
# Bytes beyond those of the process before the first try, and seconds a try.
MOST_MEMORY, MOST_SECONDS = 2**29, 10.0
HUGE = (10**400, -(10**400), 2**63, 10**18, 1e308, -1e308, 5e-324, float("inf"), float("nan"))
HOSTILE: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.5, "", "x", "loo", "scale", "precomputed", "rbf"),
    *(
        "poly",
        "learn",
        "\ud800",
        "\x00\n\r",
        "y" * 5000,
        [],
        {},
        [[]],
        {"x": 1},
        [1, 2],
        [None],
    ),
    *HUGE,
]


# --- models to start from ---------------------------------------------------------------


def new_table(rng: np.random.Generator, n: int) -> Any:
    """Numbers, words, dates, flags and gaps."""
    import pandas as pd

    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    table = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "town": rng.choice(["north", "south", "west"], n),
            "day": days,
            "written": days.strftime("%d.%m.%Y"),
            "new": rng.random(n) < 0.5,
        }
    )
    table.loc[::7, "size"] = np.nan
    return table


@cache
def bases() -> dict[str, tuple[str, bytes]]:
    """The kind and the content of valid files, by name."""
    rng = np.random.default_rng(0)
    table = new_table(rng, 40)
    features = TableFeatures().fit(table)
    X = features.transform(table)
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    y[:3] = [30.0, np.nan, np.nan]
    d = X.shape[1]
    views = [View(list(range(3))), View(list(range(3, d)), "laplacian", name="rest")]
    words = np.array(["red", "green", "blue"])
    approximated = {"n_components": 12, "random_state": 1}
    chosen = HLRegressorCV(kernels=("rbf",)).fit(X, y).best_estimator_
    fitted = {
        "exact": HLRegressor().fit(X, y),
        "poly": HLRegressor(kernel="poly", gamma=0.1, threshold=np.inf).fit(X, y),
        "own widths": HLRegressor(kernel="matern", gamma=np.full(d, 0.1)).fit(X, y),
        "nystrom": HLRegressor(approximation="nystrom", **approximated).fit(X, y),
        "fourier": HLRegressor(approximation="fourier", views=views, **approximated).fit(X, y),
        "linear": HLRegressor(approximation="linear").fit(X, np.c_[y, -y]),
        "views": HLRegressor(views=views, view_weights="learn").fit(X, y),
        "targets": HLRegressor(threshold="madn").fit(X, np.c_[y, y**2]),
        "two classes": HLClassifier(noise_rates="estimate").fit(X, words[(X[:, 0] > 0) * 1]),
        "classes": HLClassifier(alpha=1e-2, removal=None).fit(X, words[np.arange(40) % 3]),
        "chosen": chosen,
    }
    found = {}
    for name, estimator in fitted.items():
        pipeline = Pipeline([("features", features), ("estimator", estimator)])
        found[name] = FORMAT, model_bytes(Model(pipeline, "target", "id", 0.9))
    found["crowd"] = CROWD_FORMAT, crowd.model_bytes(crowd_model(rng))
    return found


def crowd_frames(rng: np.random.Generator, n: int) -> Described:
    """Frames that no one has taken, of one cell each."""
    values = np.abs(np.cumsum(rng.normal(size=(n, 8)), axis=0)).astype(np.float32)
    feet = np.repeat(values[:, :, None] / 4, 4, axis=2)
    return Described(np.arange(1, n + 1), values[:, :, None, None], feet, np.empty((0, 3)))


def crowd_model(rng: np.random.Generator) -> crowd.CrowdModel:
    """A counter of such frames."""
    scene = Scene(16, 16, np.ones((16, 16), dtype=bool), np.ones((16, 16)))
    described = crowd_frames(rng, 45)
    counts = np.rint(described.feet.sum(axis=(1, 2)))[:, None].astype(float)
    counter = fit_counter(described, scene, counts, ("count",))
    return crowd.CrowdModel(scene, counter, np.zeros((16, 16, 3), dtype=np.uint8))


@cache
def state_of(name: str) -> Any:
    """The plain values of a valid file, head and all."""
    kind, content = bases()[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.skops"
        path.write_bytes(content)
        return read_state(path, kind, MODEL if kind == FORMAT else crowd.MODEL)


# --- what is done to them ---------------------------------------------------------------


def pick(rng: np.random.Generator, choices: Any) -> Any:
    """One of some things, as it is."""
    return choices[int(rng.integers(len(choices)))]


def places(tree: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values in a tree."""
    if not isinstance(tree, (dict, list)):
        return []
    own = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [p for k, v in own for p in ((*where, k), *places(v, (*where, k)))]


def inner(tree: Any, path: tuple[Any, ...]) -> Any:
    """What a path leads to."""
    for key in path:
        tree = tree[key]
    return tree


def spoil_array(rng: np.random.Generator, array: np.ndarray) -> Any:
    """Another dtype, another shape or other numbers."""
    out = array.copy()
    what = int(rng.integers(9))
    if what == 0:
        kind = pick(rng, ["f4", "f8", "i8", "u1", "?", ">f8", "U3", "i2", "c16", "M8[s]"])
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return out.astype(kind)
            except (TypeError, ValueError):
                return np.zeros(out.shape, dtype=kind)
    if what == 1:
        return pick(
            rng, [out.T, out.ravel(), out[None], out[..., None], np.asfortranarray(out)]
        )
    if what == 2:
        return out[:-1] if rng.random() < 0.5 else np.concatenate([out, out])
    if what == 3:
        return np.empty((0, *out.shape[1:]), dtype=out.dtype)
    if what == 4:
        return np.zeros(pick(rng, [(), (0,), (1,), (7, 7), (2**20,), (3, 0)]))
    if what == 5:
        return out.tolist()
    values = [*HUGE[4:], -1.0, 0.0, 2.0, 1e-300, 1e160, 1e18]
    if out.size and out.dtype.kind == "f":
        at = slice(None) if what == 6 else int(rng.integers(out.size))
        out.reshape(-1)[at] = pick(rng, values)
    elif out.size and out.dtype.kind in "iub":
        info = np.iinfo(out.dtype) if out.dtype.kind != "b" else np.iinfo(np.uint8)
        out.reshape(-1)[int(rng.integers(out.size))] = pick(rng, [0, 1, info.max, info.min])
    return out


def spoil_value(rng: np.random.Generator, state: Any) -> str:
    """Change one value in place; what was done."""
    path = pick(rng, places(state))
    if path[0] in ("format", "version", "activehuber") and rng.random() < 0.9:
        return "nothing"
    holder, key = inner(state, path[:-1]), path[-1]
    value, what = holder[key], int(rng.integers(7))
    if isinstance(value, np.ndarray) and what < 5:
        holder[key] = spoil_array(rng, value)
    elif what == 5 and isinstance(holder, dict):
        holder[pick(rng, ["more", "", "__class__", "array of the file"])] = holder.pop(key)
    elif what == 6:
        del holder[key]
    elif what == 4:
        holder[key] = copy.deepcopy(inner(state, pick(rng, places(state))))
    elif what == 3 and isinstance(value, (int, float)):
        holder[key] = pick(
            rng, [-value, value + 1, 2 * value, 1e6 * value, str(value), [value]]
        )
    elif what == 2 and isinstance(value, list):
        holder[key] = pick(
            rng, [[*value, *value], value[:-1], value[::-1], dict(enumerate(value))]
        )
    else:
        holder[key] = copy.deepcopy(pick(rng, HOSTILE))
    return f"{path} -> {type(holder).__name__}, {what}"


def bend_number(rng: np.random.Generator, state: Any) -> str:
    """Set a number, or some of an array, to one that has the right type; what was done."""
    numeric = [
        path
        for path in places(state)
        if path[0] != "version"
        and (type(v := inner(state, path)) in (int, float) or getattr(v, "size", 0))
    ]
    path = pick(rng, numeric)
    holder, key = inner(state, path[:-1]), path[-1]
    far = float(10.0 ** rng.uniform(-320, 308))
    if type(holder[key]) is float:
        holder[key] = far
    elif type(holder[key]) is int:
        holder[key] = int(pick(rng, [0, 1, 2, 3, 1000, 2**31 - 1]))
    else:
        values = holder[key] = holder[key].copy()
        chosen = rng.random(values.shape) < rng.choice([0.02, 0.5, 1.0])
        if values.dtype.kind == "f":
            values[chosen] = pick(rng, [far, -far, 0.0, values[chosen] * far])
        elif values.dtype.kind in "iub":
            values[chosen] = pick(rng, [0, 1, 5])
    return f"{path} bent by {far:g}"


def repacked(parts: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of some parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def spoil_text(rng: np.random.Generator, parts: dict[str, bytes]) -> str:
    """Change the text of the values."""
    text, what = parts["values.json"].decode(), int(rng.integers(6))
    if what == 0:
        values = json.loads(text)
        path = pick(rng, places(values))
        inner(values, path[:-1])[path[-1]] = pick(rng, HOSTILE)
        parts["values.json"] = json.dumps(values).encode()
        return f"values {path}"
    deep = pick(rng, ["[", '{"a":', "[[],"]) * int(10 ** rng.uniform(1, 5.3))
    many = "[" + "[]," * int(10 ** rng.uniform(3, 7)) + "0]"
    odd = pick(rng, [deep, many, "NaN", "1" * 5000, "1e999", '"\\ud800"', "{", "nul", "\ufffe"])
    if what < 3:
        place = int(rng.integers(len(text)))
        found = pick(rng, [odd, text[:place] + odd + text[place:], text[:place]])
    elif what == 3:
        found = text.replace(pick(rng, ["0", "1", ":", "null", "true"]), odd[:9000], 1)
    else:
        raw = [odd, text + odd, text[: len(text) // 2], text.encode("utf-16"), b"\xff\xfe", b""]
        found = pick(rng, raw)
    parts["values.json"] = found if isinstance(found, bytes) else found.encode()
    return f"text {what}"


def spoil_header(rng: np.random.Generator, parts: dict[str, bytes]) -> str:
    """Change what an array says of itself, or how much of it there is."""
    name = pick(rng, [name for name in parts if name.endswith(".npy")])
    content = parts[name]
    shape = pick(
        rng, ["(-1,)", "(99999999999,)", "(2,2,2)", "()", "(1e9,)", "(0,)", "(True,)", "(3 , )"]
    )
    descr = pick(rng, ["'|O'", "'<f9'", "'<U99999'", "[('a','<f8')]", "'|V8'", "'<m8'", "1"])
    changes = [
        re.sub(rb"\([^)]*\)", shape.encode(), content, count=1),
        re.sub(rb"'[<|>][a-zA-Z]\d+'", descr.encode(), content, count=1),
        content.replace(b"False", b"True ", 1),
        content[: int(rng.integers(len(content)))],
        content + bytes(int(10 ** rng.uniform(0, 7))),
        content.replace(b"NUMPY\x01", b"NUMPY" + bytes([int(rng.integers(5))]), 1),
        content[:8] + bytes(rng.integers(0, 256, 2).tolist()) + content[10:],
        b"",
        content[:10] + b"__import__('os').system('false')" + content[42:],
    ]
    parts[name] = pick(rng, changes)
    return f"header {name}"


def spoil_archive(rng: np.random.Generator, content: bytes) -> tuple[bytes, str]:
    """Change the archive itself."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name, what = pick(rng, sorted(parts)), int(rng.integers(9))
    if what == 0:
        del parts[name]
    elif what == 1:
        parts[pick(rng, ["99.npy", "../x", "/etc/x", "x" * 500, "0.npy/"])] = parts[name]
    elif what == 2:
        other = pick(rng, sorted(parts))
        parts[name], parts[other] = parts[other], parts[name]
    elif what == 3:
        return repacked(parts, pick(rng, [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, 14])), "method"
    elif what == 4:
        raw = bytearray(content)
        for place in rng.integers(0, len(raw), int(rng.integers(1, 9))):
            raw[place] ^= 1 << int(rng.integers(8))
        return bytes(raw), "bits"
    elif what == 5:
        return content[: int(rng.integers(len(content)))], "cut"
    elif what == 6:
        junk = bytes(rng.integers(0, 256, 50).tolist())
        return pick(rng, [junk + content, content + junk, content + content]), "junk"
    elif what == 7:
        raw = bytearray(content)
        # Flags, method and sizes of a part, in the directory or before it.
        mark, reach = pick(rng, [(b"PK\x01\x02", (8, 28)), (b"PK\x03\x04", (6, 26))])
        start = pick(rng, [m.start() for m in re.finditer(mark, content)])
        place = start + int(rng.integers(*reach))
        raw[place] = int(rng.integers(256))
        return bytes(raw), "sizes"
    else:
        out = io.BytesIO(content)
        with warnings.catch_warnings(), zipfile.ZipFile(out, "a") as archive:
            warnings.simplefilter("ignore")
            part = zipfile.ZipInfo(name)
            part.external_attr = 0o120777 << 16  # a link
            archive.writestr(part, pick(rng, [b"/etc/passwd", parts[name]]))
        return out.getvalue(), "twice"
    return repacked(parts), f"parts {what}"


def draw(seed: int, number: int) -> tuple[str, bytes, str]:
    """The model, the content and the story of a case."""
    rng = np.random.default_rng([seed, number])
    name = pick(rng, sorted(bases()))
    _, content = bases()[name]
    way = rng.random()
    if way < 0.7:
        state = copy.deepcopy(state_of(name))
        change = spoil_value if way < 0.35 else bend_number
        with np.errstate(all="ignore"):
            story = [change(rng, state) for _ in range(int(rng.choice([1, 1, 2, 4])))]
        try:
            return name, pack(state), "; ".join(story)
        except (TypeError, ValueError):  # nothing that can be written
            return name, b"", "empty"
    if way < 0.9:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {part: archive.read(part) for part in archive.namelist()}
        story = (spoil_text if way < 0.8 else spoil_header)(rng, parts)
        return name, repacked(parts), story
    return name, *spoil_archive(rng, content)


# --- what comes of it -------------------------------------------------------------------


def use(path: Path, kind: str) -> None:
    """Load a file and predict with it: all that comes must be finite."""
    rng = np.random.default_rng(1)
    if kind == CROWD_FORMAT:
        model = crowd.load_model(path)
        found = list(model.counter.count(crowd_frames(rng, 20), model.scene).values())
    else:
        model = load_model(path)
        X, features = new_table(rng, 20), model.features
        for name in set(features.columns_) - set(X.columns):
            X[name] = X["size"]
        rows, estimator = features.transform(X), model.estimator
        if isinstance(estimator, HLClassifier):
            assert set(estimator.predict(rows)) <= set(estimator.classes_.tolist())
            found = [estimator.predict_proba(rows), estimator.decision_function(rows)]
        else:
            found = [
                model.pipeline.predict(X),
                estimator.predict_interval(rows, model.coverage),
            ]
    assert all(np.all(np.isfinite(each)) for each in found), "answers that are not finite"


def outcome(path: Path, kind: str) -> str:
    """What came of a file in a few words; an error that is none of ours is raised."""
    try:
        use(path, kind)
    except TableError as error:
        line = str(error)
        assert "\n" not in line and len(line) < 700, f"no line: {line!r}"
        assert "more memory" not in line, line
        told = path.name in line
        assert told or "the table lacks" in line, f"the file is not named: {line}"
        words = re.sub(
            r".* is damaged: |\S+\.skops|\S+\.npy|model[.\w\[\]]*:?|'.*?'|\W\d+", "", line
        )
        return "refused: " + " ".join(re.split(" of | from |, | \\(", words)[0].split()[:6])
    except (ValueError, TypeError) as error:
        good = not isinstance(error, (np.linalg.LinAlgError, UnicodeError))
        last = traceback.extract_tb(error.__traceback__)[-1]
        if not good or not (last.line or "").startswith("raise"):
            raise
        return f"refused by predict: {str(error)[:40]}"
    return "accepted"


def try_case(seed: int, number: int, folder: Path) -> str:
    """One case; AssertionError tells the story of one that went wrong."""
    name, content, story = draw(seed, number)
    path = folder / "case.skops"
    path.write_bytes(content)
    started = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = outcome(path, bases()[name][0])
    except Exception as error:
        told = "".join(traceback.format_exception(error)[-4:])
        raise AssertionError(f"case {number} of seed {seed}, {name}: {story}\n{told}") from None
    spent = time.monotonic() - started
    assert spent < MOST_SECONDS, f"case {number} of seed {seed}, {name}: {story}: {spent:.0f} s"
    return found


def run(n: int, seed: int) -> Counter[str]:
    """Try n cases in a process with little memory; AssertionError lists those that failed."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzzing.model_files", str(n), str(seed)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120 + MOST_SECONDS * n,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def limit_memory() -> None:
    """From here on take `MOST_MEMORY` more at most, where the system can be told so."""
    if not sys.platform.startswith("linux"):
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main(n: int, seed: int, only: int | None = None) -> int:
    """What came of n cases as JSON in the last line; 1 if some failed, after their stories."""
    found: Counter[str] = Counter()
    failed = []
    for name in bases():
        state_of(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.skops"
        for kind, content in bases().values():
            path.write_bytes(content)
            assert outcome(path, kind) == "accepted"
        limit_memory()
        for number in range(n) if only is None else [only]:
            try:
                found[try_case(seed, number, Path(folder))] += 1
            except AssertionError as error:
                failed.append(str(error))
    print(*failed[:20], sep="\n")
    print(f"{len(failed)} of {n} failed")
    print(json.dumps(found))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
