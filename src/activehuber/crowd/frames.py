"""A folder of images or a video file -> numbered frames, one at a time; and back to files.

path -> files or grabbed frames -> numbers, size -> each frame, or what is wrong with it
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from activehuber.runtime.files import drafted
from activehuber.runtime.messages import TableError, first_line, shortened

# Shape (height, width, 3), BGR as OpenCV has it.
Image: TypeAlias = NDArray[np.uint8]

IMAGE_NAMES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp")
# Codecs that OpenCV's headless wheels write without further libraries.
VIDEO_CODECS = {".avi": "MJPG", ".mp4": "mp4v"}
# Readable frames that settle the size of all.
SIZED_FRAMES = 5
# Numbers in names further apart than this, on average, are times of day or the like.
WIDEST_STEP = 1000
# Timestamps this many steps apart have lost a frame between them.
GAP = 1.5
# Frames of a video between two words on how far it is.
PROGRESS_STRIDE = 100
# Log level of OpenCV, and the variable and the level of its video library.
SILENT = 0
FFMPEG_LOG, FFMPEG_SILENT = "OPENCV_FFMPEG_LOGLEVEL", "-8"


class _OpenCV:
    """The module cv2, imported when something of it is needed: it is not always there."""

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # doctest asks whatever a module holds
            raise AttributeError(name)
        try:
            import cv2
        except ImportError:
            raise TableError(
                "activehuber crowd needs OpenCV: pip install 'activehuber[crowd,cli]'"
            ) from None
        return getattr(cv2, name)


cv2: Any = _OpenCV()


@dataclass(frozen=True)
class Frame:
    """One frame, or why there is none.

    Attributes
    ----------
    number : int
        From 1.
    image : ndarray of shape (height, width, 3), uint8, or None
        BGR; None if the frame cannot be used.
    problem : str
        Empty if all is well.
    """

    number: int
    image: Image | None
    problem: str = ""


@dataclass(frozen=True)
class Frames:
    """The frames of a folder or a video; images are read when they are asked for.

    Attributes
    ----------
    path : Path
        The folder or the video file.
    numbers : tuple of int
        Frame numbers, increasing.
    names : tuple of str
        The file of each frame; of a video, its name each time.
    height, width : int
        Of every frame that is used.
    notes : tuple of str
        Sentences on what was guessed or is not as promised.
    broken : str
        Why the last frame of a video stands for all that could not be decoded; or empty.
    """

    path: Path
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    height: int
    width: int
    notes: tuple[str, ...] = ()
    broken: str = ""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers between the first and the last frame that have none."""
        every = np.arange(self.numbers[0], self.numbers[-1] + 1)
        return tuple(np.setdiff1d(every, self.numbers, assume_unique=True).tolist())

    def each(self, numbers: Iterable[int] | None = None) -> Iterator[Frame]:
        """Frames in increasing order.

        Parameters
        ----------
        numbers : iterable of int or None
            Which; all if None. Each must be one of `numbers`.

        Yields
        ------
        Frame
            With an image of shape (height, width, 3), or with its problem.
        """
        wanted = list(self.numbers) if numbers is None else sorted({int(n) for n in numbers})
        unknown = set(wanted).difference(self.numbers)
        if unknown:
            raise TableError(f"{self.path} has no frame {min(unknown)}")
        read = _each_of_video if self.path.is_file() else _each_of_folder
        for frame in read(self, wanted):
            yield _sized(frame, self)


def open_frames(
    path: str | Path,
    progress: Callable[[float, str], None] | None = None,
    *,
    stride: int = PROGRESS_STRIDE,
) -> Frames:
    """Find the frames of a camera.

    Parameters
    ----------
    path : str or Path
        A folder of images, or a video file. In a folder the last digits of each name are the
        frame's number, if these are all different (and one more if they start at 0);
        otherwise the images are numbered from 1 in the order of their names.
    progress : callable or None
        Called with the share done and words while a video is gone through once.
    stride : int
        Frames of a video between two such calls.

    Returns
    -------
    Frames
    """
    path = Path(path)
    cv2.getVersionString()  # before anything is said about the path
    if path.is_dir():
        return _open_folder(path)
    if path.suffix.lower() in IMAGE_NAMES and path.is_file():
        raise TableError(f"{path} is one image; give the folder of frames or a video file")
    if not path.is_file():
        raise TableError(f"{path}: there is no such folder of images or video file")
    return _open_video(path, progress or (lambda share, words: None), stride)


# --- a folder ---------------------------------------------------------------------------


def _open_folder(path: Path) -> Frames:
    try:
        names = [
            entry.name
            for entry in path.iterdir()
            if entry.suffix.lower() in IMAGE_NAMES
            and not entry.name.startswith(".")
            and entry.is_file()
        ]
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from None
    if not names:
        raise TableError(f"{path} has no images in it; they end in {', '.join(IMAGE_NAMES)}")
    numbered, note = number_names(names)
    # The size is not known yet; 0 × 0 takes any.
    return _with_size(Frames(path, tuple(numbered), tuple(numbered.values()), 0, 0, note))


def number_names(names: Sequence[str]) -> tuple[dict[int, str], tuple[str, ...]]:
    """Number the images of a folder.

    Parameters
    ----------
    names : sequence of str
        File names.

    Returns
    -------
    numbered : dict of int to str
        Names by frame number, increasing.
    notes : tuple of str
        Where the numbers are not those in the names.
    """
    found = [re.findall(r"[0-9]+", Path(name).stem) for name in names]
    last = [int(digits[-1]) for digits in found if digits]
    if len(last) == len(names) == len(set(last)):
        if max(last) - min(last) < WIDEST_STEP * len(last):
            moved = int(min(last) == 0)
            pairs = sorted(zip(last, names, strict=True))
            note = "Names count from 0; frame numbers are one more." if moved else ""
            return {number + moved: name for number, name in pairs}, (note,) * moved
    ordered = sorted(names, key=_natural)
    note = (
        "Names do not number the frames (digits are missing, repeated or far apart); they "
        f"were numbered from 1 in their order, {shortened(ordered[0])} first."
    )
    # A single image is frame 1 whatever its name; there is nothing to confuse.
    return dict(enumerate(ordered, 1)), (note,) * (len(names) > 1)


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key by which "shot 9" comes before "shot 10"."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name.lower())
    return [(int(part), "") if part[0] in "0123456789" else (-1, part) for part in parts], name


def _each_of_folder(frames: Frames, wanted: Sequence[int]) -> Iterator[Frame]:
    files = dict(zip(frames.numbers, frames.names, strict=True))
    for number in wanted:
        image = read_image(frames.path / files[number])
        problem = f"frame {number} ({shortened(files[number], 60)}) cannot be read"
        yield Frame(number, image, problem if image is None else "")


def read_image(path: str | Path) -> Image | None:
    """Read an image file.

    Parameters
    ----------
    path : str or Path
        Grey, coloured, with or without alpha, of 8 or 16 bits.

    Returns
    -------
    ndarray of shape (height, width, 3), uint8, or None
        BGR; None if it cannot be read.
    """
    try:
        # cv2.imread does not find every name on every system; bytes it always takes.
        content = Path(path).read_bytes()
    except OSError:
        return None
    if not content or _is_cut_jpeg(content):
        return None
    with _quiet:
        try:
            encoded = np.frombuffer(content, dtype=np.uint8)
            image = cv2.imdecode(encoded, cv2.IMREAD_ANYCOLOR | cv2.IMREAD_ANYDEPTH)
        except cv2.error:
            # A header that promises too many pixels raises instead of giving None.
            return None
    if image is None:
        return None
    if image.dtype == np.uint16:
        image = cv2.convertScaleAbs(image, alpha=1 / 257)
    if image.dtype != np.uint8:
        return None
    return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image


def _is_cut_jpeg(data: bytes) -> bool:
    """Whether a JPEG has lost its end; some versions of OpenCV would fill it with grey."""
    if data[:2] != b"\xff\xd8":
        return False
    # Over the headers, because a thumbnail among them has an end of its own.
    place = 2
    while data[place : place + 1] == b"\xff" and data[place + 1 : place + 2] != b"\xda":
        # Before a marker there may be any number of bytes 255.
        filled = data[place + 1 : place + 2] == b"\xff"
        place += 1 if filled else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return data.find(b"\xff\xd9", place) < 0


# --- a video ----------------------------------------------------------------------------


def _open_video(path: Path, progress: Callable[[float, str], None], stride: int) -> Frames:
    with _capture(path) as capture:
        promised = capture.get(cv2.CAP_PROP_FRAME_COUNT)
        times = []
        # Containers may lie about their length; grabbing all is the only way to know.
        while capture.grab():
            times.append(capture.get(cv2.CAP_PROP_POS_MSEC))
            if len(times) % stride == 0:
                share = min(1.0, len(times) / promised) if promised > 0 else 0.0
                progress(share, f"finding frames: {len(times):,}")
    if not times:
        raise TableError(f"{path} has no frame that can be read; is it a whole video file?")
    length, broken, notes = _length_of_video(np.array(times), promised)
    numbers = tuple(range(1, length + 1 + bool(broken)))
    # The size is not known yet; 0 × 0 takes any.
    draft = Frames(path, numbers, (path.name,) * len(numbers), 0, 0, notes, broken)
    return _with_size(draft)


def _length_of_video(
    times: NDArray[np.float64], promised: float
) -> tuple[int, str, tuple[str, ...]]:
    """How many frames have a sure number, what broke the video, and notes.

    Parameters
    ----------
    times : ndarray of shape (n,)
        Timestamps of the frames that could be grabbed.
    promised : float
        Length by the container; 0 or less if it does not say.
    """
    got = len(times)
    if not np.isfinite(promised) or promised <= got:
        return got, "", ()
    steps = np.diff(times)
    usual = float(np.median(steps)) if got > 1 else 0.0
    gaps = np.flatnonzero(steps > GAP * usual) if usual > 0 else np.array([], dtype=int)
    if len(gaps) and np.sum(np.rint(steps[gaps] / usual) - 1) > promised - got:
        # More than was lost: the rate is uneven by nature, and gaps mean nothing.
        gaps = gaps[:0]
    if not len(gaps) and promised - got <= max(1, 0.005 * promised):
        # Lengths computed from duration × rate are off by a frame or so.
        return got, "", (f"The video promises {promised:.0f} frames and has {got}.",)
    # After a lost frame the numbers of all that follow are in doubt.
    sure = int(gaps[0]) + 1 if len(gaps) else got
    broken = (
        f"the video cannot be decoded beyond frame {sure}; it promises {promised:.0f} frames, "
        f"{got} could be decoded. Mend or convert it, or cut it before that frame"
    )
    return sure, broken, (f"{broken[0].upper()}{broken[1:]}.",)


def _each_of_video(frames: Frames, wanted: Sequence[int]) -> Iterator[Frame]:
    if not wanted:
        return
    last_sure = len(frames) - bool(frames.broken)
    asked, alive = set(wanted), True
    with _capture(frames.path) as capture:
        for position in range(1, min(wanted[-1], last_sure) + 1):
            # The quiet is not held over a yield: the caller's code has its own log level.
            with _quiet:
                alive = alive and capture.grab()
                image = capture.retrieve()[1] if alive and position in asked else None
            if position in asked:
                problem = "" if image is not None else f"frame {position} cannot be decoded"
                yield Frame(position, image, problem)
    if wanted[-1] > last_sure:
        yield Frame(wanted[-1], None, f"frame {wanted[-1]}: {frames.broken}")


@contextmanager
def _capture(path: Path) -> Iterator[Any]:
    """An open video, closed again in any case."""
    with _quiet, _quiet_ffmpeg():
        # An absolute path is never taken for a device, a pattern or an address.
        capture = cv2.VideoCapture(os.path.abspath(path))
    try:
        if not capture.isOpened():
            raise TableError(
                f"{path} cannot be opened as a video; give a folder of images, or a video "
                "file that is whole"
            )
        yield capture
    finally:
        capture.release()


# --- sizes ------------------------------------------------------------------------------


def _with_size(frames: Frames) -> Frames:
    """The frames with the height and width of most of the first readable ones."""
    readable = (frame.image for frame in frames.each())
    first = islice((image for image in readable if image is not None), SIZED_FRAMES)
    sizes = Counter((image.shape[0], image.shape[1]) for image in first)
    if not sizes:
        raise TableError(f"{frames.path}: none of the {len(frames)} frames can be read")
    height, width = sizes.most_common(1)[0][0]
    return replace(frames, height=height, width=width)


def _sized(frame: Frame, frames: Frames) -> Frame:
    """The frame, without its image if that has another size than the others."""
    if frame.image is None or not frames.height:
        return frame
    height, width = frame.image.shape[:2]
    if (height, width) == (frames.height, frames.width):
        return frame
    name = shortened(frames.names[frames.numbers.index(frame.number)], 60)
    problem = (
        f"frame {frame.number} ({name}) is {width} × {height}, the others are "
        f"{frames.width} × {frames.height}"
    )
    return Frame(frame.number, None, problem)


# --- OpenCV's own words -----------------------------------------------------------------


def opencv_logging() -> Any:
    """Where getLogLevel and setLogLevel are: OpenCV 5 has moved them."""
    return getattr(cv2.utils, "logging", cv2)


class _Quiet:
    """Keeps OpenCV from writing to stderr about broken files: they are reported by us.

    Its log level belongs to the process, so threads share one count of who wants quiet; the
    last to leave puts back what was there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0

    def __enter__(self) -> None:
        logging = opencv_logging()
        with self._lock:
            if not self._inside:
                self._before = logging.getLogLevel()
                logging.setLogLevel(SILENT)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                opencv_logging().setLogLevel(self._before)


_quiet = _Quiet()


@contextmanager
def _quiet_ffmpeg() -> Iterator[None]:
    """The video library has its own log level, which it takes from the environment once."""
    is_set = FFMPEG_LOG in os.environ
    os.environ.setdefault(FFMPEG_LOG, FFMPEG_SILENT)
    try:
        yield
    finally:
        if not is_set:
            os.environ.pop(FFMPEG_LOG, None)


# --- writing ----------------------------------------------------------------------------


def write_images(
    folder: str | Path, images: Iterable[Image], *, start: int = 1, quality: int = 92
) -> int:
    """Write frames as JPEG files named 000001.jpg, 000002.jpg and so on.

    Parameters
    ----------
    folder : str or Path
        Made if it is not there.
    images : iterable of ndarray of shape (height, width, 3), uint8
        BGR.
    start : int
        Number of the first frame.
    quality : int
        Of the JPEG, up to 100.

    Returns
    -------
    int
        How many were written.
    """
    folder = Path(folder)
    count = 0
    for count, image in enumerate(images, 1):
        _, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
        with drafted(folder / f"{start + count - 1:06d}.jpg") as draft:
            draft.write_bytes(encoded.tobytes())
    return count


def write_video(path: str | Path, images: Iterable[Image], fps: float) -> int:
    """Write frames as a video, whole or not at all.

    Parameters
    ----------
    path : str or Path
        Its ending is .avi (motion JPEG) or .mp4 (MPEG-4).
    images : iterable of ndarray of shape (height, width, 3), uint8
        BGR, all of one size.
    fps : float
        Frames a second.

    Returns
    -------
    int
        How many were written.
    """
    path = Path(path)
    codec = VIDEO_CODECS.get(path.suffix.lower())
    if codec is None:
        raise TableError(f"{path}: videos are written as {' or '.join(VIDEO_CODECS)}")
    writer, shape, count = cv2.VideoWriter(), None, 0
    with drafted(path) as draft:
        try:
            for count, image in enumerate(images, 1):
                if shape is None:
                    shape, fourcc = image.shape, cv2.VideoWriter_fourcc(*codec)
                    with _quiet, _quiet_ffmpeg():
                        opened = writer.open(str(draft), fourcc, fps, shape[1::-1])
                    if not opened:
                        raise TableError(f"{path.parent}: OpenCV cannot write a video there")
                if image.shape != shape:
                    # OpenCV would drop such a frame without a word.
                    raise TableError(f"frame {count} of the video has another size")
                writer.write(image)
        except cv2.error as error:
            raise TableError(f"the video cannot be written: {first_line(error)}") from None
        finally:
            writer.release()
        if not count:
            raise TableError(f"{path.parent}: there is no frame to write as a video")
    return count
