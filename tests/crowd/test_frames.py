"""Frames of folders and videos: their numbers, what is wrong with some, files written back."""

import os
import pickle
import subprocess
import sys
import threading

import cv2
import numpy as np
import pytest

from activehuber.crowd import frames as module
from activehuber.crowd.frames import (
    number_names,
    open_frames,
    opencv_logging,
    read_image,
    write_images,
    write_video,
)
from activehuber.runtime.messages import TableError


def shade(value, height=24, width=32):
    """A smooth image that codecs keep almost as it is."""
    image = np.full((height, width, 3), value, dtype=np.uint8)
    image[:, : width // 2] //= 2
    return image


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "frames"
    write_images(folder, [shade(20 * i) for i in range(1, 7)])
    return folder


def put(path, image):
    path.write_bytes(cv2.imencode(path.suffix, image)[1].tobytes())


# --- a folder ---------------------------------------------------------------------------


def test_folder_is_read_in_order(folder):
    frames = open_frames(str(folder))
    assert frames.numbers == (1, 2, 3, 4, 5, 6)
    assert frames.names[1] == "000002.jpg"
    assert (len(frames), frames.height, frames.width) == (6, 24, 32)
    assert frames.missing == () and frames.notes == ()
    found = list(frames.each())
    assert [frame.number for frame in found] == [1, 2, 3, 4, 5, 6]
    for frame in found:
        assert frame.problem == ""
        assert frame.image.dtype == np.uint8 and frame.image.shape == (24, 32, 3)
        assert abs(int(frame.image[12, 28, 0]) - 20 * frame.number) <= 2


def test_some_frames_only_each_once_and_in_increasing_order(folder):
    frames = open_frames(folder)
    assert [frame.number for frame in frames.each([5, 2, 5])] == [2, 5]
    assert list(frames.each([])) == []
    with pytest.raises(TableError, match=r"has no frame 7$"):
        list(frames.each([1, 7]))


@pytest.mark.parametrize(
    ("names", "numbers", "noted"),
    [
        (["seq_000803.jpg", "seq_000801.jpg"], {801: "seq_000801.jpg"}, False),
        (["f2.png", "f10.png", "f1.png"], {1: "f1.png", 10: "f10.png"}, False),
        (["a0.jpg", "a2.jpg", "a1.jpg"], {1: "a0.jpg", 3: "a2.jpg"}, True),
        (["shot9b.jpg", "shot10b.jpg"], {9: "shot9b.jpg"}, False),
        (["cam2_7.jpg", "cam2_8.jpg"], {7: "cam2_7.jpg", 8: "cam2_8.jpg"}, False),
        (["7a_v2.jpg", "10a_v2.jpg", "9a_v2.jpg"], {1: "7a_v2.jpg", 3: "10a_v2.jpg"}, True),
        (["9.jpg", "9.png"], {1: "9.jpg", 2: "9.png"}, True),
        (["b.jpg", "a.jpg", "C1.jpg"], {1: "a.jpg", 3: "C1.jpg"}, True),
        (["1700000000.jpg", "1600000000.jpg"], {1: "1600000000.jpg"}, True),
        (["plaza.jpg"], {1: "plaza.jpg"}, False),
    ],
)
def test_numbers_in_names(names, numbers, noted):
    found, notes = number_names(names)
    assert list(found) == sorted(found) and sorted(found.values()) == sorted(names)
    assert numbers.items() <= found.items()
    assert bool(notes) == noted


def test_missing_frames_are_noticed(folder):
    (folder / "000003.jpg").unlink()
    (folder / "000004.jpg").unlink()
    frames = open_frames(folder)
    assert frames.numbers == (1, 2, 5, 6)
    assert frames.missing == (3, 4)


def test_other_and_hidden_files_are_ignored(folder):
    (folder / "notes.txt").write_text("hello")
    (folder / ".000009.jpg").write_bytes(b"x")
    (folder / "more.jpg").mkdir()
    assert open_frames(folder).numbers == (1, 2, 3, 4, 5, 6)


def test_broken_frames_come_with_their_problem(folder):
    (folder / "000002.jpg").write_bytes(b"")
    (folder / "000003.jpg").write_bytes(b"no image")
    put(folder / "000004.jpg", shade(9, 30, 40))
    frames = open_frames(folder)
    found = {frame.number: frame for frame in frames.each()}
    assert found[2].problem == "frame 2 (000002.jpg) cannot be read"
    assert found[3].problem == "frame 3 (000003.jpg) cannot be read"
    assert found[4].problem == "frame 4 (000004.jpg) is 40 × 30, the others are 32 × 24"
    assert [n for n, frame in found.items() if frame.image is None] == [2, 3, 4]
    assert found[5].image.shape == (24, 32, 3)


def test_size_is_that_of_most_of_the_first_frames(folder):
    put(folder / "000001.jpg", shade(9, 30, 40))
    frames = open_frames(folder)
    assert (frames.height, frames.width) == (24, 32)
    assert next(frames.each()).image is None


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_cut_jpeg_is_not_half_a_frame(tmp_path, rng, share):
    content = cv2.imencode(".jpg", rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))[1]
    path = tmp_path / "1.jpg"
    path.write_bytes(content.tobytes())
    assert read_image(path) is not None
    path.write_bytes(content.tobytes()[: int(share * len(content))])
    assert read_image(path) is None


def test_end_of_a_jpeg_is_looked_for_behind_its_headers(tmp_path):
    content = cv2.imencode(".jpg", shade(77))[1].tobytes()
    # Behind the first header, another with a whole JPEG in it, and bytes to fill.
    first = 4 + int.from_bytes(content[4:6], "big")
    thumbnail = b"\xff\xe1" + (len(content) + 2).to_bytes(2, "big") + content + b"\xff\xff"
    whole = content[:first] + thumbnail + content[first:]
    path = tmp_path / "1.jpg"
    path.write_bytes(whole + bytes(5000))
    (tmp_path / "plain.jpg").write_bytes(content)
    np.testing.assert_array_equal(read_image(path), read_image(tmp_path / "plain.jpg"))
    for end, cut in ((len(whole), False), (-1, True), (-40, True)):
        assert module._is_cut_jpeg(whole[:end]) == cut


def test_kinds_of_images(tmp_path):
    grey = np.arange(24 * 32, dtype=np.uint16).reshape(24, 32)
    colour = cv2.merge([(grey % 256).astype(np.uint8)] * 2 + [np.uint8(grey // 8)])
    alpha = np.dstack([colour, np.full((24, 32), 100, np.uint8)])
    put(tmp_path / "grey.png", colour[..., 0])
    put(tmp_path / "alpha.png", alpha)
    put(
        tmp_path / "deep.png",
        cv2.merge([colour[..., c].astype(np.uint16) * 257 for c in range(3)]),
    )
    put(tmp_path / "deep.tiff", colour[..., 0].astype(np.uint16) * 257)
    put(tmp_path / "plain.bmp", colour)
    for name in ("alpha.png", "deep.png", "plain.bmp"):
        np.testing.assert_array_equal(read_image(tmp_path / name), colour, err_msg=name)
    for name in ("grey.png", "deep.tiff"):
        wanted = np.dstack([colour[..., 0]] * 3)
        np.testing.assert_array_equal(read_image(tmp_path / name), wanted, err_msg=name)
    put(tmp_path / "float.tiff", colour.astype(np.float32))
    assert read_image(tmp_path / "float.tiff") is None
    assert read_image(tmp_path / "absent.png") is None


def test_names_of_all_languages(tmp_path):
    folder = tmp_path / "Plätze 広場"
    write_images(folder, [shade(50)])
    (folder / "000001.jpg").rename(folder / "großes bild 1.jpg")
    assert next(open_frames(folder).each([1])).image.shape == (24, 32, 3)


@pytest.fixture
def log_level():
    """A log level of OpenCV that is not the usual one."""
    before = opencv_logging().getLogLevel()
    opencv_logging().setLogLevel(2)
    yield 2
    opencv_logging().setLogLevel(before)


def test_opencv_says_nothing_and_keeps_its_log_level(tmp_path, capfd, log_level):
    (tmp_path / "1.png").write_bytes(cv2.imencode(".png", shade(3))[1].tobytes()[:60])
    assert read_image(tmp_path / "1.png") is None
    (tmp_path / "a.mp4").write_bytes(b"junk" * 100)
    with pytest.raises(TableError, match="cannot be opened as a video"):
        open_frames(tmp_path / "a.mp4")
    assert opencv_logging().getLogLevel() == log_level
    assert module.FFMPEG_LOG not in os.environ
    out, err = capfd.readouterr()
    # In OpenCV 4 libpng speaks for itself, past any log level.
    assert (out, err.replace("libpng error: PNG input buffer is incomplete\n", "")) == ("", "")


def test_log_level_comes_back_after_threads(tmp_path, log_level):
    put(tmp_path / "1.png", shade(3))
    jobs = [
        threading.Thread(target=lambda: [read_image(tmp_path / "1.png") for _ in range(50)])
        for _ in range(4)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert opencv_logging().getLogLevel() == log_level


def test_frames_can_be_sent_to_another_process(folder):
    frames = open_frames(folder)
    again = pickle.loads(pickle.dumps(frames))
    assert again == frames
    np.testing.assert_array_equal(next(again.each([3])).image, next(frames.each([3])).image)


# --- a video ----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".avi", ".mp4"])
def test_video(tmp_path, ending):
    path = tmp_path / f"camera 1{ending}"
    assert write_video(path, (shade(20 * i) for i in range(1, 9)), 12.5) == 8
    frames = open_frames(path)
    assert frames.numbers == tuple(range(1, 9))
    assert (frames.height, frames.width) == (24, 32)
    assert frames.missing == () and frames.broken == "" and frames.notes == ()
    for frame in frames.each():
        assert abs(int(frame.image[12, 28, 0]) - 20 * frame.number) <= 6
    asked = list(frames.each([7, 3]))
    assert [frame.number for frame in asked] == [3, 7]
    np.testing.assert_array_equal(asked[1].image, next(frames.each([7])).image)


def test_progress_of_a_long_video(tmp_path):
    path = tmp_path / "a.avi"
    write_video(path, [shade(9)] * 8, 10)
    said = []
    open_frames(path, lambda share, words: said.append((share, words)), stride=4)
    assert said == [(0.5, "finding frames: 4"), (1.0, "finding frames: 8")]


def test_cut_video_says_so(tmp_path, rng, capfd):
    path = tmp_path / "a.avi"
    noise = rng.integers(0, 256, (20, 48, 64, 3), dtype=np.uint8)
    write_video(path, noise, 10)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 6 // 10])
    frames = open_frames(path)
    found = list(frames.each())
    good = [frame for frame in found if frame.image is not None]
    assert 5 <= len(good) < 14
    assert len(found) == len(good) + 1 == len(frames)
    assert found[-1].problem.startswith(f"frame {len(good) + 1}: the video cannot be decoded")
    assert "it promises 20 frames" in found[-1].problem
    assert len(frames.notes) == 1 and "promises 20 frames" in frames.notes[0]
    assert "cannot be decoded beyond" in found[-1].problem
    assert capfd.readouterr() == ("", "")


def lengths(times, promised):
    length, broken, notes = module._length_of_video(np.array(times, dtype=float), promised)
    return length, bool(broken), len(notes)


def test_what_a_container_promises():
    steady = np.arange(400) * 40.0
    assert lengths(steady, 400) == (400, False, 0)
    assert lengths(steady, 0) == lengths(steady, -1) == lengths(steady, np.nan)
    assert lengths(steady, 0) == (400, False, 0)
    assert lengths(steady, 300) == (400, False, 0)
    assert lengths(steady, 401) == (400, False, 1)
    assert lengths(steady, 500) == (400, True, 1)
    # Frames lost in the middle: what follows has no sure number.
    assert lengths(np.delete(steady, [100, 101, 300]), 400) == (100, True, 1)
    # An uneven rate alone is no loss.
    assert lengths(np.delete(steady, [100, 101, 300]), 397) == (397, False, 0)
    assert lengths(np.delete(steady, [100, 101, 300]), 398) == (397, False, 1)
    assert lengths([0.0], 2) == (1, False, 1)
    assert lengths([0.0], 9) == (1, True, 1)


def test_video_that_ends_early_between_two_readings(tmp_path):
    path = tmp_path / "a.avi"
    write_video(path, [shade(9 * i) for i in range(8)], 10)
    frames = open_frames(path)
    write_video(path, [shade(9 * i) for i in range(5)], 10)
    problems = [frame.problem for frame in frames.each([4, 5, 6, 8])]
    assert problems == ["", "", "frame 6 cannot be decoded", "frame 8 cannot be decoded"]


# --- what cannot be opened ---------------------------------------------------------------


def test_nothing_to_open(tmp_path):
    with pytest.raises(TableError, match="no such folder of images or video file"):
        open_frames(tmp_path / "absent")
    with pytest.raises(TableError, match=r"has no images in it; they end in \.jpg"):
        open_frames(tmp_path)
    put(tmp_path / "1.png", shade(3))
    with pytest.raises(TableError, match="is one image; give the folder"):
        open_frames(tmp_path / "1.png")
    (tmp_path / "1.png").write_bytes(b"x")
    (tmp_path / "2.png").write_bytes(b"x")
    with pytest.raises(TableError, match="none of the 2 frames can be read"):
        open_frames(tmp_path)


def test_folder_that_may_not_be_read(folder, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(folder), "iterdir", refuse)
    with pytest.raises(TableError, match="cannot be read: Permission denied"):
        open_frames(folder)


def test_without_opencv(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    line = "activehuber crowd needs OpenCV: pip install 'activehuber[crowd,cli]'"
    with pytest.raises(TableError) as caught:
        open_frames(folder)
    assert str(caught.value) == line


def test_opencv_is_not_imported_before_it_is_needed():
    names = ("frames", "counts", "synthetic")
    lines = "; ".join(f"import activehuber.crowd.{name}" for name in names)
    command = f"import sys; {lines}; sys.exit('cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


# --- writing ----------------------------------------------------------------------------


def test_images_are_numbered_and_no_draft_stays(tmp_path):
    folder = tmp_path / "a" / "b"
    assert write_images(folder, (shade(9) for _ in range(3)), start=801) == 3
    assert sorted(os.listdir(folder)) == ["000801.jpg", "000802.jpg", "000803.jpg"]
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="cannot be written"):
        write_images(tmp_path / "file", [shade(9)])


def test_video_is_whole_or_absent(tmp_path):
    def failing():
        yield shade(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_video(tmp_path / "a.avi", failing(), 10)
    with pytest.raises(TableError, match="frame 2 of the video has another size"):
        write_video(tmp_path / "a.avi", [shade(3), shade(3, 30, 40)], 10)
    with pytest.raises(TableError, match="no frame to write"):
        write_video(tmp_path / "a.avi", [], 10)
    with pytest.raises(TableError, match=r"written as \.avi or \.mp4"):
        write_video(tmp_path / "a.gif", [shade(3)], 10)
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="cannot be written"):
        write_video(tmp_path / "file" / "a.avi", [shade(3)], 10)
