"""The paper's data: from the user's folder, else the user's cache, else the web.

    name -> file ($ACTIVEHUBER_DATA, cache, download) -> arrays, their layout checked

Both folders have the same layout:

    uci/{boston_housing,airfoil,yacht,wine_red}.csv   a header line, the target last
    raetsch/{breast_cancer,diabetis,thyroid,german,heart,image}.npz   X, t and perhaps splits
    raetsch/benchmarks.mat                            instead of them: all, with all splits
    mall/mall_feat.mat, mall/mall_gt.mat              as published
    mall/frames/seq_000001.jpg and on, mall/perspective_roi.mat   as published
    mall/counts.csv                                   frame,count; else mall_gt.mat serves
    ucsd_peds1/ucsd_peds1_left.npz                    X, count: people who walk to the left
    ucsd_peds1/{cvpr_feats,Peds1_feats}.mat           as published: see `ucsd`
    pets2009/<sequence>_<region>_feats.mat            see `pets2009`

The UCI tables and benchmarks.mat are downloaded when they are in neither folder; a download
is kept in the cache only once its content has the checksum that is written here. What the
user puts into $ACTIVEHUBER_DATA is taken as it is. Nothing that is loaded is executed.

Environment: ACTIVEHUBER_DATA, a folder; ACTIVEHUBER_OFFLINE=1, no downloads;
ACTIVEHUBER_MIRROR, a web address that stands in for the host of every download.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat

from activehuber.runtime.messages import TableError, first_line, listed
from experiments.paper.files import (
    MOST_BYTES,
    DownloadError,
    MissingDataError,
    Report,
    cache_folder,
    download,
    find,
    keep_download,
    require,
    silent,
    where_missing,
)

Counted = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Place:
    """Where a table is on the web.

    Attributes
    ----------
    url : str
    member : str
        The file wanted if the download is a zip archive, else "".
    """

    url: str
    member: str = ""


@dataclass(frozen=True)
class Source:
    """A table of numbers that can be downloaded.

    Attributes
    ----------
    file : str
        Where it is kept, relative to the data folder.
    columns : int
    sha256 : str
        Of the numbers, row by row, as little-endian float64. The places differ in headers
        and delimiters, the numbers do not.
    places : tuple of Place
        Tried one after the other.
    """

    file: str
    columns: int
    sha256: str
    places: tuple[Place, ...]


_UCI_SITE = "https://archive.ics.uci.edu"
UCI = {
    "House": Source(
        "uci/boston_housing.csv",
        14,
        "832e894115c56dd24ec63848d4a3d9bd921d268d0be1bee2a8f4ee5ea318f5f7",
        (
            Place("https://www.openml.org/data/v1/download/52643/boston.arff"),
            Place(f"{_UCI_SITE}/ml/machine-learning-databases/housing/housing.data"),
        ),
    ),
    "Air": Source(
        "uci/airfoil.csv",
        6,
        "11fab2c660f61031935f9995d27929df39a175d3551271b397c8aa254b19b6b6",
        (
            Place(
                f"{_UCI_SITE}/static/public/291/airfoil+self+noise.zip",
                "airfoil_self_noise.dat",
            ),
        ),
    ),
    "Hydro": Source(
        "uci/yacht.csv",
        7,
        "ec08588637fd93582116a1ead33f0c1e787dae755168073608e030e5282a3f4e",
        (
            Place(
                f"{_UCI_SITE}/static/public/243/yacht+hydrodynamics.zip",
                "yacht_hydrodynamics.data",
            ),
        ),
    ),
    "Wine": Source(
        "uci/wine_red.csv",
        12,
        "d4f6a6d672e0ee31d41fdd93b4b58985b45a31f2f971499c18137c42229278ac",
        (Place(f"{_UCI_SITE}/static/public/186/wine+quality.zip", "winequality-red.csv"),),
    ),
}

RAETSCH = {
    "Breast Cancer": "breast_cancer",
    "Diabetes": "diabetis",
    "Thyroid": "thyroid",
    "German": "german",
    "Heart": "heart",
    "Image": "image",
}
# All of Raetsch's sets with all their splits, and the checksum of that file.
BENCHMARKS = "raetsch/benchmarks.mat"
BENCHMARKS_URL = (
    "https://github.com/tdiethe/gunnar_raetsch_benchmark_datasets/raw/master/benchmarks.mat"
)
BENCHMARKS_SHA256 = "47c19e4bc4716edc4077cfa5ea61edf4d02af4ec51a0ecfe035626ae8b561c75"

MALL_PAGE = "https://personal.ie.cuhk.edu.hk/~ccloy/downloads_mall_dataset.html"
CROWD_PAGE = "http://visal.cs.cityu.edu.hk/downloads/"


# --- UCI --------------------------------------------------------------------------------


def uci(name: str, report: Report = silent) -> tuple[np.ndarray, np.ndarray]:
    """One of the four UCI regression tables.

    Parameters
    ----------
    name : {"House", "Air", "Hydro", "Wine"}
    report : callable
        Called with one line as a download goes on.

    Returns
    -------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)

    Examples
    --------
    >>> from experiments.paper.data import uci
    >>> X, y = uci("House")                       # doctest: +SKIP
    """
    source = _named(name, UCI)
    path = find(source.file)
    if path is None:
        table = _table_from_web(source, report)
    else:
        table = _file(path, lambda: numbers(path.read_text("utf-8", "replace")))
        if path == cache_folder() / source.file and checksum(table) != source.sha256:
            raise TableError(f"{path} has changed since its download; delete it and run again")
    if table.shape[1] != source.columns:
        raise TableError(f"{path} has {table.shape[1]} columns, not {source.columns}")
    return table[:, :-1], table[:, -1]


def numbers(text: str) -> np.ndarray:
    """The table in a text, whatever stands between its numbers.

    Spaces, tabs, commas and semicolons separate, quotes are ignored, and so are empty lines,
    the first lines as long as they are not numbers (titles of columns), and in ARFF all up
    to @data.

    Parameters
    ----------
    text : str

    Returns
    -------
    ndarray of shape (n, d)
    """
    rows: list[list[float]] = []
    for line in re.split(r"(?im)^@data\s*$", text)[-1].splitlines():
        cells = re.split(r"[\s,;'\"]+", line.strip(" \t\r,;'\""))
        if cells == [""] or line.startswith("%"):
            continue
        try:
            row = [float(cell) for cell in cells]
        except ValueError:
            if rows:
                raise TableError(f"{line.strip()[:40]!r} is not a row of numbers") from None
            continue
        if rows and len(row) != len(rows[0]):
            raise TableError(f"row {len(rows) + 1} has {len(row)} columns, not {len(rows[0])}")
        rows.append(row)
    table = np.array(rows)
    if not rows or not np.isfinite(table).all():
        raise TableError("it is not a table of numbers")
    return table


def checksum(table: np.ndarray) -> str:
    """SHA-256 of numbers, row by row, as little-endian float64."""
    return hashlib.sha256(np.ascontiguousarray(table, dtype="<f8").tobytes()).hexdigest()


def _table_from_web(source: Source, report: Report) -> np.ndarray:
    """The table from the first place that has it; kept in the cache."""
    problems = []
    for place in source.places:
        try:
            table = numbers(_member(download(place.url, report), place))
            if checksum(table) != source.sha256:
                raise DownloadError(f"{place.url}: the checksum is not the one known")
        except TableError as error:
            problems.append(str(error))
            continue
        titles = [f"x{j + 1}" for j in range(table.shape[1] - 1)]
        rows = [",".join(map(repr, row)) for row in table.tolist()]
        content = "\n".join([",".join([*titles, "target"]), *rows]) + "\n"
        keep_download(source.file, content.encode(), report)
        return table
    wanted = [f"{p.member} of {p.url}" if p.member else p.url for p in source.places]
    raise MissingDataError(
        f"{where_missing(source.file)}: save {' or '.join(wanted)} as {source.file} there; "
        f"the download failed ({'; '.join(problems)})"
    )


def _member(content: bytes, place: Place) -> str:
    """The text of a file, or of the wanted file in a zip archive."""
    if place.member:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if archive.getinfo(place.member).file_size > MOST_BYTES:
                    raise DownloadError(f"{place.url}: {place.member} in it is too large")
                content = archive.read(place.member)
        except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError):
            raise DownloadError(f"{place.url}: no zip archive with {place.member}") from None
    return content.decode("utf-8", "replace")


# --- Raetsch ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Raetsch:
    """One set of Raetsch's benchmark.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    t : ndarray of shape (n,)
        Classes, −1 and +1.
    train : ndarray of shape (n_splits, n_train), or None
        Rows of the official splits; a row that comes twice is two equal patterns.
    test : ndarray of shape (n_splits, n_test), or None
    """

    X: np.ndarray
    t: np.ndarray
    train: np.ndarray | None
    test: np.ndarray | None


def raetsch(name: str, report: Report = silent) -> Raetsch:
    """One of six two-class sets, with the official splits at hand.

    Read from `raetsch/<name>.npz` (arrays X, t and, where splits are known, train and test,
    0-based; for Diabetes `badsn_train` and `badsn_test`, one split), else from
    `raetsch/benchmarks.mat` (a struct a set with x (n, d), t (n, 1), train and test
    (n_splits, ·), 1-based), which is downloaded if need be.

    Parameters
    ----------
    name : {"Breast Cancer", "Diabetes", "Thyroid", "German", "Heart", "Image"}
    report : callable
        Called with one line as a download goes on.

    Returns
    -------
    Raetsch

    Examples
    --------
    >>> from experiments.paper.data import raetsch
    >>> heart = raetsch("Heart")                 # doctest: +SKIP
    """
    stem = _named(name, RAETSCH)
    small = find(f"raetsch/{stem}.npz")
    if small is not None:
        return _file(small, lambda: _checked_set(_raetsch_npz(small)))
    path = find(BENCHMARKS)
    content = path.read_bytes() if path is not None else _benchmarks_from_web(stem, report)
    if path == cache_folder() / BENCHMARKS and _sha256(content) != BENCHMARKS_SHA256:
        raise TableError(f"{path} has changed since its download; delete it and run again")
    where = path or cache_folder() / BENCHMARKS
    return _file(where, lambda: _checked_set(_raetsch_mat(content, stem)))


def _raetsch_npz(path: Path) -> Raetsch:
    with np.load(path, allow_pickle=False) as file:
        splits = [
            next((file[k].astype(np.intp) for k in (key, f"badsn_{key}") if k in file), None)
            for key in ("train", "test")
        ]
        return Raetsch(np.asarray(file["X"], float), np.asarray(file["t"], float), *splits)


def _raetsch_mat(content: bytes, stem: str) -> Raetsch:
    struct = loadmat(io.BytesIO(content), variable_names=[stem])[stem][0, 0]
    # MATLAB counts rows from 1.
    train, test = (struct[key].astype(np.intp) - 1 for key in ("train", "test"))
    return Raetsch(struct["x"].astype(float), struct["t"].ravel().astype(float), train, test)


def _checked_set(found: Raetsch) -> Raetsch:
    n = len(found.t)
    if found.X.ndim != 2 or found.X.shape[0] != n or not np.isfinite(found.X).all():
        raise TableError(f"X has shape {found.X.shape} for {n} classes, or gaps")
    if not np.isin(found.t, (-1.0, 1.0)).all():
        raise TableError("t must be -1 and +1")
    for rows in (found.train, found.test):
        if rows is not None and (rows.ndim != 2 or rows.min() < 0 or rows.max() >= n):
            raise TableError(f"a split names rows outside 0 to {n - 1}")
    if (found.train is None) != (found.test is None):
        raise TableError("of train and test rows one is missing")
    return found


def _benchmarks_from_web(stem: str, report: Report) -> bytes:
    try:
        content = download(BENCHMARKS_URL, report)
        if _sha256(content) != BENCHMARKS_SHA256:
            raise DownloadError(f"{BENCHMARKS_URL}: the checksum is not the one known")
    except DownloadError as error:
        raise MissingDataError(
            f"{where_missing(f'raetsch/{stem}.npz')}: save {BENCHMARKS_URL} as {BENCHMARKS} "
            f"there; the download failed ({error})"
        ) from None
    keep_download(BENCHMARKS, content, report)
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- crowds -----------------------------------------------------------------------------


def mall_features() -> Counted:
    """Features and counts of the Mall video.

    `mall/mall_feat.mat`: x (2000, 30); columns 0–9 size, 10–17 edges, 18–29 texture.
    `mall/mall_gt.mat`: count (2000, 1); without it the heads in frame{i}.loc are counted.

    Returns
    -------
    X : ndarray of shape (n_frames, 30)
    count : ndarray of shape (n_frames,)

    Examples
    --------
    >>> from experiments.paper.data import mall_features
    >>> X, count = mall_features()                # doctest: +SKIP
    """
    names = ("mall/mall_feat.mat", "mall/mall_gt.mat")
    features, truth = require(names, f"the archive mall_dataset.zip of {MALL_PAGE}")
    X = _file(features, lambda: loadmat(features)["x"].astype(float))
    count = _file(truth, lambda: _mall_counts(loadmat(truth)))
    return _checked_counts(X, count, features)


def _mall_counts(content: dict[str, Any]) -> np.ndarray:
    if "count" in content:
        return content["count"].ravel().astype(float)
    return np.array([float(len(frame["loc"][0, 0])) for frame in content["frame"].ravel()])


@dataclass(frozen=True)
class MallFrames:
    """The Mall video, and what is known of its camera.

    Attributes
    ----------
    folder : Path
        Of n images.
    counts : ndarray of shape (n,)
        People in each frame, from frame 1 on.
    roi : ndarray of shape (h, w), bool
        Where they were counted; its size is that of the published frames.
    perspective : ndarray of shape (h, w)
        Proportional to the height of a person there.
    """

    folder: Path
    counts: np.ndarray
    roi: np.ndarray
    perspective: np.ndarray


def mall_frames() -> MallFrames:
    """Frames, counts, region of interest and perspective of the Mall video.

    `mall/frames/seq_000001.jpg` and on; `mall/perspective_roi.mat`: pMapN (h, w), one over the
    square of a person's height, and roi.mask (h, w); `mall/counts.csv`: frame and count, or
    without it `mall/mall_gt.mat` as in `mall_features`.

    Returns
    -------
    MallFrames

    Examples
    --------
    >>> from experiments.paper.data import mall_frames
    >>> frames = mall_frames()                    # doctest: +SKIP
    """
    counts = find("mall/counts.csv")
    # The first frame stands for all; who reads the folder misses the others.
    names = ["mall/frames/seq_000001.jpg", "mall/perspective_roi.mat"]
    names += [] if counts else ["mall/mall_gt.mat"]
    origin = f"the archive mall_dataset.zip of {MALL_PAGE}"
    first, camera, *truth = require(names, origin)
    if counts:
        count = _file(counts, lambda: _numbered_counts(numbers(counts.read_text("utf-8"))))
    else:
        count = _file(truth[0], lambda: _mall_counts(loadmat(truth[0])))
    roi, perspective = _file(camera, lambda: _mall_camera(loadmat(camera)))
    return MallFrames(first.parent, count, roi, perspective)


def _numbered_counts(table: np.ndarray) -> np.ndarray:
    """Counts in the order of their frames, shape (n,), from a table of shape (n, 2)."""
    if table.shape[1] != 2:
        raise TableError(f"{table.shape[1]} columns; frame and count are wanted")
    order = np.argsort(table[:, 0], kind="stable")
    frame, count = table[order].T
    if not np.array_equal(frame, np.arange(1, len(frame) + 1)) or (count < 0.0).any():
        raise TableError("every frame from 1 on needs one count, 0 or more")
    return count


def _mall_camera(content: dict[str, Any]) -> Counted:
    """Region of interest and perspective, both of shape (h, w)."""
    roi = np.asarray(content["roi"]["mask"][0, 0]) > 0
    density = np.asarray(content["pMapN"], dtype=float)
    if density.ndim != 2 or roi.shape != density.shape:
        raise TableError(f"roi.mask has shape {roi.shape}, pMapN {density.shape}")
    if not (np.isfinite(density).all() and (density > 0.0).all()):
        raise TableError("pMapN must be above 0 everywhere")
    return roi, density**-0.5


def ucsd_left() -> Counted:
    """Features and counts of the people who walk to the left in UCSD Peds1.

    `ucsd_peds1/ucsd_peds1_left.npz`: X (4000, 30) of mean 0 and variance 1, count (4000,);
    else the left-moving part of `ucsd_peds1/Peds1_feats.mat` (`ucsd`), standardised.

    Returns
    -------
    X : ndarray of shape (n_frames, n_features)
    count : ndarray of shape (n_frames,)
    """
    name = "ucsd_peds1/ucsd_peds1_left.npz"
    path = find(name)
    if path is not None:
        X, count = _file(path, lambda: _left_npz(path))
        return _checked_counts(X, count, path)
    try:
        X, count = ucsd("Peds1_feats")["left"]
    except MissingDataError as error:
        raise MissingDataError(f"{name} is not there, and in its stead {error}") from None
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), count


def _left_npz(path: Path) -> Counted:
    with np.load(path, allow_pickle=False) as file:
        return np.asarray(file["X"], float), np.asarray(file["count"], float)


def ucsd(file: str = "cvpr_feats") -> dict[str, Counted]:
    """Chan's features and counts of the UCSD video, as published.

    The archive `ucsdpeds_feats` has `cvpr_feats.mat` (2000 frames, those of the paper) and
    `Peds1_feats.mat` (4000 frames), each with the cell arrays dirs{j}, name of direction j;
    fv{j}, features by frames (d × n); cnt{j}, counts (1 × n). Directions "l" or "left", "r"
    or "right" are wanted; "t", "total", "a" or "all" is taken if there, and without it the
    total is the sum, with the features of both side by side.

    Parameters
    ----------
    file : {"cvpr_feats", "Peds1_feats"}

    Returns
    -------
    dict
        "left", "right" and "total" -> X (n_frames, d), count (n_frames,).
    """
    (path,) = require([f"ucsd_peds1/{file}.mat"], f"the archive ucsdpeds_feats of {CROWD_PAGE}")
    return _directions(path)


def pets2009_file(sequence: str, region: str) -> str:
    """Where the features of a sequence and region are kept, e.g. "13-57" and "R1"."""
    return f"pets2009/{sequence}_{region}_feats.mat"


def pets2009(sequence: str, region: str) -> dict[str, Counted]:
    """Features and counts of one sequence and region of PETS 2009.

    One file a sequence and region, `pets2009/<sequence>_<region>_feats.mat`, with the cell
    arrays dirs, fv and cnt of `ucsd`. The layout of the published PETS files could not be
    seen: whoever has them in another one saves them in this one.

    Parameters
    ----------
    sequence : {"13-57", "13-59", "14-03", "14-06", "14-17"}
    region : {"R0", "R1", "R2"}

    Returns
    -------
    dict
        "left", "right" and "total" -> X (n_frames, d), count (n_frames,).
    """
    (path,) = require_pets2009([(sequence, region)])
    return _directions(path)


def require_pets2009(wanted: Iterable[tuple[str, str]]) -> list[Path]:
    """Paths of the files of (sequence, region); an error that names all that are missing."""
    names = [pets2009_file(sequence, region) for sequence, region in wanted]
    return require(
        names,
        f"the PETS 2009 features and counts of {CROWD_PAGE}, each file with cell arrays dirs "
        '("l", "r"), fv (features by frames) and cnt (counts)',
    )


_DIRECTIONS = {
    **dict.fromkeys(("l", "left"), "left"),
    **dict.fromkeys(("r", "right"), "right"),
    **dict.fromkeys(("t", "total", "a", "all"), "total"),
}


def _directions(path: Path) -> dict[str, Counted]:
    """Features and counts by direction, from cell arrays dirs, fv and cnt."""
    found = _file(path, lambda: _cells(path))
    if not {"left", "right"} <= set(found):
        raise TableError(f"{path}: dirs must have l and r; it has {listed(found)}")
    found = {name: pair for name, pair in found.items() if name in _DIRECTIONS.values()}
    for X, count in found.values():
        _checked_counts(X, count, path)
    (left, n_left), (right, n_right) = found["left"], found["right"]
    if len(n_left) != len(n_right):
        raise TableError(
            f"{path}: {len(n_left)} frames to the left, {len(n_right)} to the right"
        )
    found.setdefault("total", (np.hstack([left, right]), n_left + n_right))
    return found


def _cells(path: Path) -> dict[str, Counted]:
    content = loadmat(path, variable_names=("dirs", "fv", "cnt"))
    parts = [content[key].ravel() for key in ("dirs", "fv", "cnt")]
    found = {}
    for name, features, count in zip(*parts, strict=True):
        text = str(np.asarray(name).item()).strip()
        pair = features.T.astype(float), count.ravel().astype(float)
        found[_DIRECTIONS.get(text.lower(), text)] = pair
    return found


def _checked_counts(X: np.ndarray, count: np.ndarray, path: Path) -> Counted:
    if X.ndim != 2 or count.shape != X.shape[:1]:
        raise TableError(f"{path}: {X.shape} features do not fit {count.shape} counts")
    if not (np.isfinite(X).all() and np.isfinite(count).all() and (count >= 0.0).all()):
        raise TableError(f"{path} has gaps, or counts below zero")
    return X, count


# --- files ------------------------------------------------------------------------------


def _named(name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise ValueError(f"there is no set {name!r}; there are {', '.join(known)}")
    return known[name]


def _file(path: Path, read: Callable[[], Any]) -> Any:
    """What a reader returns; whatever is wrong with the file becomes one line."""
    try:
        return read()
    # A damaged file can fail anywhere inside the readers of NumPy and SciPy.
    except Exception as error:
        raise TableError(f"{path} cannot be used: {first_line(error)}") from None


# --- downloads --------------------------------------------------------------------------
