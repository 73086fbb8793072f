"""`activehuber crowd train`, `count` and `next`: frames -> features -> counts -> files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import activehuber
from activehuber._typing import Matrix, Vector
from activehuber.crowd.background import Backgrounds, find_backgrounds, with_level
from activehuber.crowd.counter import NEW_GROUND, Counter, fit_counter
from activehuber.crowd.counts import counts_csv, read_counts
from activehuber.crowd.features import Described, describe_frames, look_at, overlay
from activehuber.crowd.frames import Frames, Image, cv2, open_frames, read_image
from activehuber.crowd.model import CrowdModel, check_same_camera, load_model, model_bytes
from activehuber.crowd.page import CrowdReport, FrameCounts, Picture, render
from activehuber.crowd.perspective import drawn_heights, learn_heights
from activehuber.crowd.scene import Scene, make_scene, perspective_line, shrink
from activehuber.runtime.messages import TableError, first_line, listed

# Pictures on the page: flagged counts, and frames to check the foreground by.
MOST_FLAGGED, SAMPLES = 24, 8
PICTURE_WIDTH, PICTURE_QUALITY = 320, 80
COVERAGE = 0.9
# Frames that cannot be used, each with its reason, before the others are only counted.
MOST_PROBLEMS = 20
COUNTS, FLAGGED = "counts.csv", "flagged.csv"
FILES = (COUNTS, FLAGGED, "report.html", "model.skops")

Tell = Callable[[float, str], None]


@dataclass(frozen=True)
class Style:
    """How counts are written.

    Attributes
    ----------
    smooth : int
        Frames that a count is the mean over, as many before as after; an odd number.
    integer : bool
        Whole people; ends of intervals are moved outwards.
    """

    smooth: int = 1
    integer: bool = False

    def __post_init__(self) -> None:
        if self.smooth < 1 or self.smooth % 2 == 0:
            raise TableError(
                f"--smooth {self.smooth}: give an odd number of frames, as 5: a count is then "
                "the mean over two frames before, its own, and two after"
            )

    def __call__(self, columns: dict[str, Vector]) -> dict[str, Vector]:
        """Columns of counts and the ends of their intervals in this style."""
        # Intervals move along: how far errors of neighbours cancel is not known.
        rounding = {"lower": np.floor, "upper": np.ceil}
        out = dict(columns)
        for name in columns.keys() - {NEW_GROUND}:
            out[name] = _running_mean(columns[name], self.smooth)
            if self.integer:
                out[name] = rounding.get(name.rpartition("_")[2], _whole)(out[name])
        return out

    def notes(self) -> tuple[str, ...]:
        """What a reader of the counts has to know."""
        if self.smooth == 1:
            return ()
        after = self.smooth // 2
        return (
            f"Counts are means over {self.smooth} frames: each is known {after} "
            f"{'frame' if after == 1 else 'frames'} late, and quick changes are flattened.",
        )


def _whole(values: Vector) -> Vector:
    return np.floor(values + 0.5)


def _running_mean(values: Vector, width: int) -> Vector:
    """Means over so many frames around each, of those that are there."""
    known, own = np.isfinite(values), slice(width // 2, width // 2 + len(values))
    sums = np.convolve(np.where(known, values, 0.0), np.ones(width))[own]
    many = np.convolve(known, np.ones(width))[own]
    return np.where(known, sums / np.maximum(many, 1.0), np.nan)


@dataclass(frozen=True)
class Counted:
    """Counts of a sequence, and what to say about them.

    Attributes
    ----------
    frames : Frames
    columns : dict of str to ndarray of shape (n,)
        count, lower, upper, and the same of each target if there are two.
    given : ndarray of shape (n,)
        NaN where nobody counted.
    flagged : ndarray of int
        Frame numbers whose given count is flagged, worst first.
    notes : tuple of str
        What was guessed, skipped or is missing.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from activehuber.crowd.command import Counted
    >>> from activehuber.crowd.frames import Frames
    >>> frames = Frames(Path("plaza"), (1, 2, 3), ("1.jpg", "2.jpg", "3.jpg"), 96, 128)
    >>> table = np.array([[2.2, 1.0, 4.0], [np.nan] * 3, [3.5, 2.0, 5.0]])
    >>> columns = dict(zip(("count", "lower", "upper"), table.T, strict=True))
    >>> counted = Counted(frames, columns, np.array([2, np.nan, 9]), np.array([3]), ())
    >>> print(counted.csv().decode())
    frame,count,lower,upper
    1,2.2,1,4
    2,,,
    3,3.5,2,5
    <BLANKLINE>
    >>> counted.flagged_csv().splitlines()
    [b'frame,given,fitted,lower,upper', b'3,9,3.5,2,5']
    """

    frames: Frames
    columns: dict[str, Vector]
    given: Vector
    flagged: np.ndarray
    notes: tuple[str, ...]

    def csv(self) -> bytes:
        """frame,count,lower,upper and more; an empty cell where a frame was skipped."""
        return _rounded_csv(self.frames.numbers, self.columns)

    def flagged_csv(self) -> bytes:
        """frame,given,fitted,lower,upper of the flagged counts, worst first."""
        names = {"fitted": "count", "lower": "lower", "upper": "upper"}
        columns = {"given": self.given} | {to: self.columns[name] for to, name in names.items()}
        places = np.searchsorted(self.frames.numbers, self.flagged)
        return _rounded_csv(self.flagged, {name: v[places] for name, v in columns.items()})


def _rounded_csv(numbers: Iterable[int], columns: dict[str, Vector]) -> bytes:
    """Three decimals are more than enough of a count."""
    rounded = {name: [round(v, 3) for v in values.tolist()] for name, values in columns.items()}
    return counts_csv(numbers, rounded)


@dataclass(frozen=True)
class Trained:
    """The end of `crowd train`.

    Attributes
    ----------
    model : CrowdModel
        What `count` needs.
    counted : Counted
        All frames of the training sequence.
    page : str
        The page.
    """

    model: CrowdModel
    counted: Counted
    page: str

    def files(self) -> dict[str, bytes]:
        """Names and contents."""
        return {
            COUNTS: self.counted.csv(),
            FLAGGED: self.counted.flagged_csv(),
            "report.html": self.page.encode("utf-8", "replace"),
            "model.skops": model_bytes(self.model),
        }


def train(
    path: Path,
    counts: Path,
    *,
    roi: Path | None = None,
    perspective: Path | None = None,
    line: tuple[float, float] | None = None,
    style: Style = Style(),
    tell: Tell = lambda share, words: None,
) -> Trained:
    """Learn to count from some counted frames and all uncounted ones.

    Parameters
    ----------
    path : Path
        A folder of images, or a video file.
    counts : Path
        CSV with frame,count or frame,left,right; see `read_counts`.
    roi : Path or None
        An image of the frames' shape, non-zero where people are counted.
    perspective : Path or None
        A .npy file of the frames' shape with the height of a person at every place.
    line : (top, bottom) or None
        That height at the top and at the bottom row instead. Without both it is learnt.
    style : Style
        How counts are written.
    tell : callable
        Gets the share of the work done, and words.

    Returns
    -------
    Trained

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from activehuber.crowd.command import train
    >>> from activehuber.crowd.frames import write_images
    >>> from activehuber.crowd.synthetic import synthetic_camera
    >>> clip = synthetic_camera(40, height=96, width=128, people=(1, 6))
    >>> counts = pd.DataFrame({"frame": range(1, 41), "count": clip.counts})[::2]
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     _ = write_images(folder / "frames", clip.images())
    ...     counts.to_csv(folder / "counts.csv", index=False)
    ...     trained = train(folder / "frames", folder / "counts.csv")
    >>> trained.counted.columns["count"].shape   # all frames, counted or not
    (40,)
    """
    frames = _find_frames(path, tell)
    given = read_counts(counts, frames)
    scene = _scene_of(frames, roi, perspective, line, motion=len(given.names) > 1)
    backgrounds, described, scene = _describe(frames, scene, tell, None)
    if scene.person is None:
        heights = learn_heights(described.seen, len(scene.roi))
        scene = replace(scene, person=np.tile(heights[:, None], scene.roi.shape[1]))
    counts_used, unused = _usable(given.values, described)
    tell(0.7, "choosing and fitting")
    counter, warned = _with_warnings(
        lambda: fit_counter(
            *(described, scene, counts_used, given.names),
            coverage=COVERAGE,
            report=lambda words: tell(0.8, words),
        )
    )
    counted = Counted(
        frames,
        style(counter.count(described, scene)),
        given.values.sum(axis=1),
        counter.flagged,
        (*given.notes, *unused, *warned, *style.notes(), *_notes(frames, described)),
    )
    model = CrowdModel(scene, counter, backgrounds.images[-1])
    tell(0.92, "drawing the page")
    page = _page(counted, model, backgrounds, table=COUNTS, source=counts.name)
    return Trained(model, counted, page)


def _usable(values: Matrix, described: Described) -> tuple[Matrix, tuple[str, ...]]:
    """Counts of frames that can be read, and a note on the others."""
    lost = described.numbers[np.isfinite(values).any(axis=1) & ~described.readable]
    note = f"Counts of frames that cannot be read were not used: {listed(lost)}."
    used = np.where(described.readable[:, None], values, np.nan)
    return used, (note,) * bool(len(lost))


def _with_warnings(fit: Callable[[], Counter]) -> tuple[Counter, tuple[str, ...]]:
    """What a fit gives, and notes on its warnings, each once: fits repeat themselves."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counter = fit()
    return counter, tuple(dict.fromkeys(f"The fit: {first_line(w.message)}." for w in caught))


def count(
    model_path: Path,
    path: Path,
    *,
    counts: Path | None = None,
    style: Style = Style(),
    page: bool,
    table: str = COUNTS,
    tell: Tell = lambda share, words: None,
) -> tuple[Counted, CrowdModel, str]:
    """Count the frames of a video with a trained model.

    Parameters
    ----------
    model_path : Path
        model.skops of `train`.
    path : Path
        A folder of images, or a video file.
    counts : Path or None
        Counts of some of these frames, as `train` takes them; a few are worth much.
    style : Style
        How counts are written.
    page : bool
        Whether to draw the page.
    table : str, default="counts.csv"
        Name of the file that the counts go to, for the page.

    Returns
    -------
    counted : Counted
    model : CrowdModel
    page : str
        Empty if it was not asked for.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from activehuber.crowd.command import count, train
    >>> from activehuber.crowd.frames import write_images
    >>> from activehuber.crowd.synthetic import synthetic_camera
    >>> from activehuber.runtime.files import write_files
    >>> clip = synthetic_camera(60, height=96, width=128, people=(1, 6))
    >>> counts = pd.DataFrame({"frame": range(1, 61), "count": clip.counts})[::2]
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     _ = write_images(folder / "frames", clip.images())
    ...     counts.to_csv(folder / "counts.csv", index=False)
    ...     trained = train(folder / "frames", folder / "counts.csv")
    ...     write_files(folder / "camera", trained.files())
    ...     model = folder / "camera" / "model.skops"
    ...     counted, _, _ = count(model, folder / "frames", page=False)
    >>> counted.columns["count"].shape
    (60,)
    """
    model, frames, backgrounds, described = _described_by(model_path, path, tell)
    given = np.full(len(frames), np.nan)
    notes = (*style.notes(), *_notes(frames, described))
    source = Path(*model_path.parts[-2:]).as_posix()  # with its folder: all have one name
    flagged = np.empty(0, dtype=int)
    if counts is not None:
        tell(0.85, "fitting with the counts of these frames")
        read = read_counts(counts, frames, model.counter.names, fewest=1)
        used, unused = _usable(read.values, described)
        counter, warned = _with_warnings(
            lambda: model.counter.counting(described, model.scene, used)
        )
        model, given, flagged = (
            *(replace(model, counter=counter), read.values.sum(axis=1)),
            counter.flagged,
        )
        notes, source = (*read.notes, *unused, *warned, *notes), f"{source}, {counts.name}"
    columns = style(model.counter.count(described, model.scene))
    counted = Counted(frames, columns, given, flagged, notes)
    if not page:
        return counted, model, ""
    return counted, model, _page(counted, model, backgrounds, table=table, source=source)


def propose(
    model_path: Path, path: Path, *, many: int = 10, tell: Tell = lambda share, words: None
) -> list[str]:
    """The frames of a video whose count would help a model most to count the others.

    The frames are cut into as many stretches of time, since a count says most of the frames
    around; in each that one is taken whose interval is widest for its count.

    Parameters
    ----------
    model_path : Path
        model.skops of `train`.
    path : Path
        A folder of images, or a video file.
    many : int
        How many frames.

    Returns
    -------
    list of str
        Lines of CSV: frame, file, and expected, lower and upper as the model counts.
    """
    if many < 1:
        raise TableError(f"-n {many}: ask for one frame at least")
    model, frames, _, described = _described_by(model_path, path, tell)
    columns = model.counter.count(described, model.scene)
    unsure = (columns["upper"] - columns["lower"]) / (1.0 + columns["count"])
    stretches = np.array_split(np.flatnonzero(described.readable), many)
    lines = ["frame,file,expected,lower,upper"]
    for part in stretches:
        if len(part):
            k = part[np.argmax(unsure[part])]
            ends = (f"{columns[name][k]:.1f}" for name in ("count", "lower", "upper"))
            lines.append(",".join([str(frames.numbers[k]), frames.names[k], *ends]))
    return lines


def _described_by(
    model_path: Path, path: Path, tell: Tell
) -> tuple[CrowdModel, Frames, Backgrounds, Described]:
    """A model, and frames of its camera as it sees them."""
    model = load_model(model_path)
    frames = _find_frames(path, tell)
    check_same_camera(model, frames)
    backgrounds, described, _ = _describe(frames, model.scene, tell, model.empty)
    return model, frames, backgrounds, described


def _find_frames(path: Path, tell: Tell) -> Frames:
    """The frames; a video is gone through once, which takes its time."""
    tell(0.01, "looking at the frames")
    return open_frames(path, lambda share, words: tell(0.01 + 0.09 * share, words))


def _describe(
    frames: Frames, scene: Scene, tell: Tell, known: Image | None
) -> tuple[Backgrounds, Described, Scene]:
    """Backgrounds and features; a scene without a model gets its level of foreground."""

    def share(low: float, high: float, words: str) -> Callable[[int, int], Any]:
        return lambda done, total: tell(low + (high - low) * done / total, words)

    backgrounds = find_backgrounds(frames, scene, share(0.1, 0.18, "background"), known)
    if known is None:
        scene = with_level(frames, scene, backgrounds)
    described = describe_frames(frames, scene, backgrounds, share(0.18, 0.7, "features"))
    return backgrounds, described, scene


def _scene_of(
    frames: Frames,
    roi: Path | None,
    perspective: Path | None,
    line: tuple[float, float] | None,
    *,
    motion: bool,
) -> Scene:
    if perspective is not None and line is not None:
        raise TableError("give --perspective or --perspective-line, not both")
    inside, heights = None, None
    if roi is not None:
        image = read_image(roi)
        if image is None:
            raise TableError(f"--roi {roi}: there is no such image, or it cannot be read")
        inside = np.asarray(image.any(axis=2))
    if perspective is not None:
        heights = _read_map(perspective)
    if line is not None:
        heights = perspective_line(frames.height, frames.width, *line)
    size = (frames.height, frames.width)
    return make_scene(*size, roi=inside, perspective=heights, motion=motion)


def _read_map(path: Path) -> Matrix:
    try:
        # From memory: NumPy does not close a file that it cannot read.
        found = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except Exception as error:
        # NumPy lets through whatever a damaged file leads to; nothing in it has been run.
        words = first_line(error) or "it is empty or damaged"
        raise TableError(f"--perspective {path} cannot be read as .npy: {words}") from None
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biuf":
        raise TableError(f"--perspective {path}: it must hold one array of numbers")
    return found.astype(float)


def _notes(frames: Frames, described: Described) -> tuple[str, ...]:
    notes = list(frames.notes)
    if frames.missing:
        many = len(frames.missing)
        words = "1 frame number has" if many == 1 else f"{many} frame numbers have"
        notes.append(f"{words} no file: {listed(frames.missing)}.")
    # That a video is broken is in the notes of its frames already.
    problems = [
        p for p in described.problems if not (frames.broken and p.endswith(frames.broken))
    ]
    notes += [f"{problem[0].upper()}{problem[1:]}." for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        more = len(problems) - MOST_PROBLEMS
        notes.append(f"{more} more {'frame' if more == 1 else 'frames'} cannot be used.")
    return tuple(notes)


# --- the page ---------------------------------------------------------------------------


def _page(
    counted: Counted, model: CrowdModel, backgrounds: Backgrounds, *, table: str, source: str
) -> str:
    frames, counter = counted.frames, model.counter
    numbers = np.array(frames.numbers)
    given, bad = counted.given, np.isin(numbers, counted.flagged)
    columns = {name: counted.columns[name] for name in ("count", "lower", "upper")}
    shown = counted.flagged[:MOST_FLAGGED].tolist()
    readable = numbers[np.isfinite(counted.columns["count"])]
    samples = readable[np.linspace(0, len(readable) - 1, SAMPLES).astype(int)]
    drawn = _pictures(frames, model.scene, backgrounds, {*shown, *samples.tolist()})
    empty = backgrounds.images[len(backgrounds.images) // 2]
    report = CrowdReport(
        title=frames.path.name,
        source=source,
        facts=_facts(counted, model),
        target_names=counter.names,
        frames=FrameCounts(numbers, given, **columns, flagged=bad),
        believable=_believable(model),
        flagged=tuple(drawn[number] for number in shown),
        samples=tuple(drawn[number] for number in dict.fromkeys(samples.tolist())),
        skipped=counted.notes,
        settings=_settings(model),
        background=_jpeg(drawn_heights(empty, model.scene.heights)),
        remarks=_cautions(counted, model),
        table=table,
        flagged_table=FLAGGED if _has_given(counted) else "",
    )
    return render(report)


def _pictures(
    frames: Frames, scene: Scene, backgrounds: Backgrounds, numbers: set[int]
) -> dict[int, Picture]:
    """Frames and their foreground, by number, in one pass."""
    found = {}
    for frame in frames.each(numbers):
        assert frame.image is not None  # it has been read before
        image = shrink(frame.image, scene)
        look = look_at(image, backgrounds.near(frame.number), scene)
        found[frame.number] = Picture(
            frame.number, _jpeg(frame.image), _jpeg(overlay(image, look))
        )
    return found


def _jpeg(image: Image) -> bytes:
    height, width = image.shape[:2]
    if width > PICTURE_WIDTH:
        size = (PICTURE_WIDTH, max(1, round(height * PICTURE_WIDTH / width)))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    quality = [cv2.IMWRITE_JPEG_QUALITY, PICTURE_QUALITY]
    return cv2.imencode(".jpg", image, quality)[1].tobytes()


def _facts(counted: Counted, model: CrowdModel) -> tuple[tuple[str, str], ...]:
    values, counter = counted.columns["count"], model.counter
    known, new = values[np.isfinite(values)], counted.columns[NEW_GROUND]
    facts = [
        ("frames", f"{len(values)}"),
        ("mean count", f"{known.mean():.1f}"),
        ("smallest to largest", f"{known.min():.0f}–{known.max():.0f}"),
        ("error on other stretches of time", f"{counter.error:.2f}"),
        ("error of the mean of the counts there", f"{counter.mean_error:.2f}"),
        ("foreground on new ground", f"{100 * np.nanmean(new):.0f} %"),
    ]
    if counter.between is not None:
        facts.insert(5, ("error between counted frames", f"{counter.between.error:.2f}"))
    if _has_given(counted):
        facts.insert(1, ("counted by hand", f"{np.isfinite(counted.given).sum()}"))
        facts.insert(2, ("flagged", f"{len(counted.flagged)}"))
    return tuple(facts)


def _has_given(counted: Counted) -> bool:
    return bool(np.isfinite(counted.given).any())


def _believable(model: CrowdModel) -> bool:
    """Whether other frames are counted better than by the mean of the counts."""
    return model.counter.error < model.counter.mean_error


def _cautions(counted: Counted, model: CrowdModel) -> tuple[str, ...]:
    """What not to read into the figures."""
    found = []
    if not _believable(model):
        found.append(
            "On stretches of time that it has not seen, the model is no better than the mean "
            "of the counts: count more frames, at other times, before you rely on it there."
        )
    if not _has_given(counted):
        found.append(
            "The error was measured at training. On these frames it is not known, and may be "
            "larger if light or crowd have changed: count a few of them by hand and give them "
            "as --counts; crowd next says which."
        )
    return tuple(found)


def _settings(model: CrowdModel) -> tuple[tuple[str, str], ...]:
    counter, scene = model.counter, model.scene
    gaps, residuals = counter.model.duality_gap_, counter.model.kkt_residual_
    far, near = scene.heights[[0, -1]]
    return (
        ("views", ", ".join(f"{view.name}: {view.kernel}" for view in counter.scale.views())),
        ("weight of cells", f"{counter.local:g}"),
        ("alpha", f"{counter.model.alpha:.3g}"),
        ("counted frames in the fit", f"{len(counter.labels)}"),
        ("independent stretches that they are worth", f"{counter.independent:.0f}"),
        ("intervals", f"{100 * counter.coverage:.0f} %, from stretches left out"),
        ("foreground from", f"{scene.level:.1f} grey levels"),
        ("worked on", f"{scene.roi.shape[1]} × {scene.roi.shape[0]} pixels"),
        ("region of interest", f"{100 * scene.roi.mean():.0f} % of the frame"),
        ("height of a person", f"{far:.0f} pixels at the top row to {near:.0f} at the bottom"),
        ("duality gap", ", ".join(f"{gap:.1e}" for gap in np.atleast_1d(gaps))),
        ("KKT residual", ", ".join(f"{left:.1e}" for left in np.atleast_1d(residuals))),
        ("activehuber", activehuber.__version__),
        ("OpenCV", cv2.__version__),
    )


def summary(counted: Counted, model: CrowdModel, most: int = 10) -> list[str]:
    """Lines for a person at the terminal."""
    lines = [f"{name}: {value}" for name, value in _facts(counted, model)]
    for number in counted.flagged[:most]:
        at = np.searchsorted(counted.frames.numbers, number)
        value, lower, upper = (counted.columns[k][at] for k in ("count", "lower", "upper"))
        lines.append(
            f"frame {number}: given {counted.given[at]:g}, expected {value:.1f} "
            f"({lower:.0f} to {upper:.0f})"
        )
    if len(counted.flagged) > most:
        lines.append(f"and {len(counted.flagged) - most} more: see {FLAGGED}")
    return [*lines, *_cautions(counted, model)]
