"""The commands that count people, from files to files."""

import csv
import re
from functools import partial

import cv2
import numpy as np
import pytest

from activehuber.cli.app import run
from activehuber.crowd import command
from activehuber.crowd.frames import open_frames, write_images, write_video
from activehuber.crowd.model import MODEL, load_model, model_bytes
from activehuber.crowd.synthetic import synthetic_camera
from activehuber.persistence.model_files import CROWD_FORMAT, read_state, state_bytes
from activehuber.persistence.schema import record
from activehuber.runtime.messages import TableError

N = 120
WRONG = (31, 76)
COLUMNS = ("count", "lower", "upper", "new_ground")


@pytest.fixture(scope="module")
def clip():
    return synthetic_camera(N, height=96, width=128, people=(2, 8), fps=4.0, random_state=2)


@pytest.fixture(scope="module")
def camera(clip, tmp_path_factory):
    """A folder with frames, counts (two of them wrong), a video, a mask and a map."""
    folder = tmp_path_factory.mktemp("camera")
    write_images(folder / "frames", clip.images())
    write_video(folder / "video.avi", clip.images(), clip.fps)
    given = {i + 1: int(clip.counts[i]) for i in range(0, N, 3)} | dict.fromkeys(WRONG, 60)
    write_counts(folder / "counts.csv", ("frame", "count"), given.items())
    write_images(folder / "mask", [np.repeat(255 * clip.roi[..., None], 3, 2).astype(np.uint8)])
    np.save(folder / "map.npy", clip.perspective)
    return folder


def write_counts(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module")
def trained(camera):
    code = run(
        [
            *("crowd", "train", str(camera / "frames"), str(camera / "counts.csv")),
            *("--roi", str(camera / "mask" / "000001.jpg")),
            *("--perspective", str(camera / "map.npy"), "-o", str(camera / "out")),
        ]
    )
    assert code == 0
    return camera / "out"


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_train_writes_counts_of_all_frames(trained, clip):
    assert sorted(p.name for p in trained.iterdir()) == sorted(command.FILES)
    rows = read(trained / "counts.csv")
    assert list(rows[0]) == ["frame", "count", "lower", "upper", "new_ground"]
    assert [int(row["frame"]) for row in rows] == list(range(1, N + 1))
    found = np.array([[float(row[k]) for k in ("count", "lower", "upper")] for row in rows])
    assert np.all((found[:, 1] >= 0.0) & (found[:, 1] <= found[:, 0]))
    assert np.all(found[:, 0] <= found[:, 2])
    error = np.abs(found[:, 0] - clip.counts).mean()
    assert error < 0.6 * np.abs(clip.counts - np.median(clip.counts)).mean()


def test_wrong_counts_are_in_a_file_worst_first(trained):
    rows = read(trained / "flagged.csv")
    assert list(rows[0]) == ["frame", "given", "fitted", "lower", "upper"]
    assert {int(row["frame"]) for row in rows[:2]} == set(WRONG)
    assert [row["given"] for row in rows[:2]] == ["60", "60"]
    every = {row["frame"]: row for row in read(trained / "counts.csv")}
    for row in rows:
        ours = [every[row["frame"]][name] for name in ("count", "lower", "upper")]
        assert [row[name] for name in ("fitted", "lower", "upper")] == ours


def test_the_file_of_flagged_counts_is_there_without_any(camera):
    frames = open_frames(camera / "frames")
    columns = dict.fromkeys(COLUMNS, np.ones(N))
    counted = command.Counted(frames, columns, np.ones(N), np.empty(0, dtype=int), ())
    assert counted.flagged_csv() == b"frame,given,fitted,lower,upper\n"


def test_the_page_names_the_wrong_counts(trained):
    text = (trained / "report.html").read_text()
    for number in WRONG:
        assert f"frame {number}: given 60" in text.lower()
    assert "All of them are in flagged.csv as well." in text
    assert "not on this page" in text and "are in counts.csv," in text
    assert header_of(text) == "Crowd count of frames, from counts.csv"
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def header_of(page):
    """The line at the top of the page, without its tags."""
    return re.sub("<[^>]*>", "", re.search("<p>Crowd count of.*</p>", page)[0])


def test_the_summary_is_printed(camera, trained, capsys):
    arguments = ["crowd", "train", str(camera / "frames"), str(camera / "counts.csv")]
    assert run([*arguments, "-o", str(trained)]) == 2
    assert "--force" in capsys.readouterr().err
    assert run([*arguments, "-o", str(trained.parent / "plain")]) == 0
    out = capsys.readouterr().out
    assert "frame 31: given 60, expected" in out
    assert f"{N} frames in" in out
    for name in ("other stretches of time", "the mean of the counts there", "between counted"):
        assert f"{name}" in out
    assert "at training" not in out
    assert str(trained.parent / "plain" / "flagged.csv") in out


def test_many_flagged_counts_are_left_to_the_file(camera, trained):
    columns = dict.fromkeys(COLUMNS, np.ones(N))
    frames, flagged = open_frames(camera / "frames"), np.arange(1, 14)
    counted = command.Counted(frames, columns, np.full(N, 9.0), flagged, ())
    lines = command.summary(counted, load_model(trained / "model.skops"))
    assert "and 3 more: see flagged.csv" in lines


def test_frames_may_be_given_by_their_files(camera, trained, tmp_path):
    rows = [
        (f"frames/{int(row['frame']):06d}.jpg", row["count"])
        for row in read(camera / "counts.csv")
    ]
    write_counts(tmp_path / "names.csv", ("frame", "count"), rows)
    options = {"roi": camera / "mask" / "000001.jpg", "perspective": camera / "map.npy"}
    found = command.train(camera / "frames", tmp_path / "names.csv", **options)
    assert found.counted.csv() == (trained / "counts.csv").read_bytes()


def test_counting_the_same_frames_as_a_video_gives_nearly_the_same(camera, trained, capsys):
    target = camera / "video.csv"
    arguments = ["crowd", "count", str(trained / "model.skops"), str(camera / "video.avi")]
    page = camera / "video.html"
    assert run([*arguments, "-o", str(target), "--report", str(page)]) == 0
    again = np.array([float(row["count"]) for row in read(target)])
    first = np.array([float(row["count"]) for row in read(trained / "counts.csv")])
    # The video is compressed once more, and there are no counts to make use of.
    assert np.abs(again - first).mean() < 0.5
    text, out = page.read_text(), capsys.readouterr().out
    assert "every frame are in video.csv, not on this page" in text
    assert "flagged.csv" not in text
    assert header_of(text) == "Crowd count of video.avi, from out/model.skops"
    for said in (text, out):
        assert "error on other stretches of time" in said
        assert "On these frames it is not known" in said
    assert run([*arguments, "-o", str(target)]) == 2


def test_counts_of_some_of_the_frames_are_used(camera, trained, tmp_path, clip, capsys):
    rows = [(i + 1, int(clip.counts[i]) + 3) for i in range(5, N, 12)]
    write_counts(tmp_path / "few.csv", ("frame", "count"), rows)
    arguments = ["crowd", "count", str(trained / "model.skops"), str(camera / "video.avi")]
    target, page = tmp_path / "c.csv", tmp_path / "c.html"
    few = ["--counts", str(tmp_path / "few.csv")]
    assert run([*arguments, *few, "-o", str(target), "--report", str(page)]) == 0
    again = np.array([float(row["count"]) for row in read(target)])
    first = np.array([float(row["count"]) for row in read(trained / "counts.csv")])
    # Ten counts are three too high: other frames follow them.
    assert 0.5 < np.mean(again - first) < 3.5
    assert (
        header_of(page.read_text()) == "Crowd count of video.avi, from out/model.skops, few.csv"
    )
    assert "counted by hand: 10" in capsys.readouterr().out
    write_counts(tmp_path / "few.csv", ("frame", "left", "right"), [(1, 2, 3)])
    assert run([*arguments, *few, "-o", str(target), "--force"]) == 2
    assert "the model counts count, this file left, right" in capsys.readouterr().err
    write_counts(tmp_path / "few.csv", ("frame", "count"), [(1, "")])
    assert run([*arguments, *few, "-o", str(target), "--force"]) == 2
    assert "count one at least" in capsys.readouterr().err


def test_next_names_frames_spread_over_time(camera, trained, capsys):
    arguments = ["crowd", "next", str(trained / "model.skops"), str(camera / "frames")]
    assert run([*arguments, "-n", "6"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0]) == ["frame", "file", "expected", "lower", "upper"]
    numbers = [int(row["frame"]) for row in rows]
    assert [(number - 1) * 6 // N for number in numbers] == [0, 1, 2, 3, 4, 5]
    assert rows[2]["file"] == f"{numbers[2]:06d}.jpg"
    assert run([*arguments, "-n", "0"]) == 2
    assert "ask for one frame at least" in capsys.readouterr().err


def test_counts_are_smoothed_and_made_whole_if_asked(camera, trained, tmp_path, capsys):
    arguments = ["crowd", "count", str(trained / "model.skops"), str(camera / "frames")]
    for name, options in {
        "plain": [],
        "smooth": ["--smooth", "5"],
        "whole": ["--integer"],
    }.items():
        assert run([*arguments, *options, "-o", str(tmp_path / f"{name}.csv")]) == 0
        said = capsys.readouterr().err
        assert ("each is known 2 frames late" in said) == (name == "smooth")
    plain, smooth, whole = (
        np.array([[float(row[k]) for k in COLUMNS] for row in read(tmp_path / f"{name}.csv")])
        for name in ("plain", "smooth", "whole")
    )
    np.testing.assert_allclose(smooth[50, 0], plain[48:53, 0].mean(), atol=1e-3)
    np.testing.assert_allclose(smooth[0, 0], plain[:3, 0].mean(), atol=1e-3)
    np.testing.assert_array_equal(whole[:, 3], plain[:, 3])
    np.testing.assert_array_equal(smooth[:, 3], plain[:, 3])
    assert np.all(whole[:, :3] % 1 == 0) and np.all(np.abs(whole[:, 0] - plain[:, 0]) <= 0.5)
    assert np.all((whole[:, 1] <= plain[:, 1]) & (whole[:, 2] >= plain[:, 2]))
    assert run([*arguments, "--smooth", "4", "-o", str(tmp_path / "c.csv")]) == 2
    assert "give an odd number of frames" in capsys.readouterr().err


def test_a_folder_of_the_frames_of_a_video_is_counted_as_the_video(camera, trained, tmp_path):
    """To the last digit if nothing was lost, and nearly so after another compression."""
    film = [frame.image for frame in open_frames(camera / "video.avi").each()]
    (tmp_path / "exact").mkdir()
    for number, image in enumerate(film, 1):
        cv2.imwrite(str(tmp_path / "exact" / f"{number:04d}.png"), image)
    write_images(tmp_path / "again", film)
    video, exact, again = (
        command.count(trained / "model.skops", path, page=False)[0].columns["count"]
        for path in (camera / "video.avi", tmp_path / "exact", tmp_path / "again")
    )
    np.testing.assert_array_equal(video, exact)
    assert np.mean(np.abs(again - video)) < 0.15


def test_a_video_that_is_gone_through_moves_the_bar(camera, trained, monkeypatch):
    by_twenty = partial(open_frames, stride=20)
    monkeypatch.setattr(command, "open_frames", by_twenty)
    told = []

    def tell(share, words):
        told.append((share, words))

    command.count(trained / "model.skops", camera / "video.avi", page=False, tell=tell)
    found = [share for share, words in told if words.startswith("finding frames")]
    assert len(found) == N // 20 and found[0] < found[-1]
    shares = [share for share, _ in told]
    assert shares == sorted(shares)


def test_a_model_file_gives_the_same_counts(camera, trained, tmp_path):
    model = load_model(trained / "model.skops")
    (tmp_path / "copy.skops").write_bytes(model_bytes(model))
    both = [
        command.count(path, camera / "frames", page=False)[0].columns["count"]
        for path in (trained / "model.skops", tmp_path / "copy.skops")
    ]
    np.testing.assert_array_equal(*both)


def test_other_files_are_refused(camera, trained, tmp_path, capsys):
    (tmp_path / "model.skops").write_bytes(b"PK\x03\x04 not a model")
    arguments = ["crowd", "count", str(tmp_path / "model.skops"), str(camera / "frames")]
    assert run([*arguments, "-o", str(tmp_path / "c.csv")]) == 2
    assert "was not opened" in capsys.readouterr().err
    table = tmp_path / "t.csv"
    table.write_text("a\n1\n")
    refused = ["predict", str(trained / "model.skops"), str(table), "-o", str(tmp_path / "p")]
    assert run(refused) == 2
    assert "one for activehuber crowd count" in capsys.readouterr().err
    assert not (tmp_path / "c.csv").exists()


def test_a_model_of_an_older_format_is_refused_in_one_line(trained, tmp_path, monkeypatch):
    model = load_model(trained / "model.skops")
    with monkeypatch.context() as older:
        older.setattr("activehuber.persistence.model_files.VERSION", 5)
        (tmp_path / "old.skops").write_bytes(model_bytes(model))
    with pytest.raises(TableError, match=r"^old\.skops has format 5, .* reads 9; [^\n]*$"):
        load_model(tmp_path / "old.skops")


def test_frames_of_another_size_are_refused(trained, tmp_path):
    other = synthetic_camera(3, height=48, width=64, random_state=0)
    write_images(tmp_path / "small", other.images())
    with pytest.raises(TableError, match="64 × 48, but the model was trained on 128 × 96"):
        command.count(trained / "model.skops", tmp_path / "small", page=False)


def test_left_and_right_sum_to_the_count(camera, clip, tmp_path):
    rows = [(i + 1, int(clip.left[i]), int(clip.right[i])) for i in range(0, N, 3)]
    write_counts(tmp_path / "sides.csv", ("frame", "left", "right"), rows)
    found = command.train(camera / "frames", tmp_path / "sides.csv")
    columns = found.counted.columns
    assert list(columns)[:4] == ["count", "lower", "upper", "left"]
    np.testing.assert_allclose(columns["left"] + columns["right"], columns["count"])
    for name, truth in (("left", clip.left), ("right", clip.right)):
        assert np.abs(columns[name] - truth).mean() < np.abs(truth - np.median(truth)).mean()


def test_an_unreadable_frame_is_skipped_aloud(camera, clip, tmp_path, capsys):
    write_images(tmp_path / "frames", clip.images())
    (tmp_path / "frames" / "000004.jpg").write_bytes(b"no image")
    (tmp_path / "frames" / "000050.jpg").unlink()
    arguments = ["crowd", "train", str(tmp_path / "frames"), str(camera / "counts.csv")]
    assert run([*arguments, "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert "Frame 4 (000004.jpg) cannot be read." in said
    assert "Counts of frames that cannot be read were not used: 4." in said
    assert "1 frame number has no file: 50." in said
    rows = {int(row["frame"]): row["count"] for row in read(tmp_path / "out" / "counts.csv")}
    assert rows[4] == ""
    assert 50 not in rows
    assert rows[5] != ""


def test_a_video_that_ends_early_is_told_once(camera, trained, tmp_path, capsys):
    content = (camera / "video.avi").read_bytes()
    (tmp_path / "cut.avi").write_bytes(content[: len(content) // 2])
    arguments = ["crowd", "count", str(trained / "model.skops"), str(tmp_path / "cut.avi")]
    assert run([*arguments, "-o", str(tmp_path / "cut.csv")]) == 0
    said = capsys.readouterr().err
    assert said.count("cannot be decoded beyond frame") == 1
    *counted, last = read(tmp_path / "cut.csv")
    assert last["count"] == "" and all(row["count"] for row in counted)


def test_many_frames_of_another_size_are_told_in_short(clip, trained, tmp_path, capsys):
    write_images(tmp_path / "mixed", clip.images())
    small = synthetic_camera(31, height=48, width=64, random_state=0)
    write_images(tmp_path / "mixed", small.images(), start=60)
    arguments = ["crowd", "count", str(trained / "model.skops"), str(tmp_path / "mixed")]
    assert run([*arguments, "-o", str(tmp_path / "c.csv")]) == 0
    said = capsys.readouterr().err
    assert said.count("is 64 × 48, the others are 128 × 96.") == 20
    assert "note: 11 more frames cannot be used.\n" in said


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--roi", "nothing.png"], "there is no such image"),
        (["--perspective", "nothing.npy"], "cannot be read as .npy"),
        (["--perspective-line", "0", "3"], "both above 0"),
        (["--perspective-line", "1e-9", "1e9"], "no perspective"),
    ],
)
def test_bad_options_are_one_line(camera, tmp_path, capsys, extra, message):
    arguments = ["crowd", "train", str(camera / "frames"), str(camera / "counts.csv")]
    assert run([*arguments, *extra, "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_map_and_line_are_not_given_both(camera, tmp_path):
    with pytest.raises(TableError, match="not both"):
        command.train(
            camera / "frames",
            camera / "counts.csv",
            perspective=camera / "map.npy",
            line=(10.0, 20.0),
        )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04junk", b"\x93NUMPY\x01\x00\x05\x00{{{{{"])
def test_damaged_maps_are_one_line(camera, tmp_path, content):
    (tmp_path / "map.npy").write_bytes(content)
    with pytest.raises(TableError, match=r"cannot be read as \.npy"):
        command.train(
            camera / "frames", camera / "counts.csv", perspective=tmp_path / "map.npy"
        )


def test_inputs_are_never_replaced(camera, trained, tmp_path, capsys):
    model = tmp_path / "model.skops"
    model.write_bytes((trained / "model.skops").read_bytes())
    before = model.read_bytes()
    arguments = ["crowd", "count", str(model), str(camera / "video.avi"), "--force"]
    assert run([*arguments, "-o", str(model)]) == 2
    assert "is read by this command" in capsys.readouterr().err
    assert model.read_bytes() == before
    given = (camera / "counts.csv").read_bytes()
    again = ["crowd", "train", str(camera / "frames"), str(camera / "counts.csv"), "--force"]
    assert run([*again, "-o", str(camera)]) == 2
    assert (camera / "counts.csv").read_bytes() == given


def test_a_page_that_cannot_be_written_stops_before_the_work(camera, trained, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    arguments = ["crowd", "count", str(trained / "model.skops"), str(camera / "video.avi")]
    report = ["--report", str(tmp_path / "file" / "page.html")]
    assert run([*arguments, "-o", str(tmp_path / "c.csv"), *report]) == 2
    assert "is a file, not a folder" in capsys.readouterr().err
    assert not (tmp_path / "c.csv").exists()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("error", float("nan")),
        ("names", ["left", "right"]),
        ("scale.totals", np.ones(3)),
        ("scale.cells", np.zeros(240)),
        ("taken", np.ones(3, dtype=bool)),
        ("empty", np.zeros((96, 128), dtype=np.uint8)),
        ("scene.level", float("nan")),
        ("scene.motion", True),
        ("scene.roi", np.zeros((96, 128), dtype=bool)),
        ("scene.person", np.zeros((96, 128))),
        ("local", -1.0),
        ("independent", 0.0),
        ("model", None),
    ],
)
def test_a_model_that_was_tampered_with_is_damaged(trained, tmp_path, part, value):
    state = read_state(trained / "model.skops", CROWD_FORMAT, MODEL)
    *outer, last = part.split(".")
    inner = state[outer[0]] if outer else state
    assert last in inner
    inner[last] = value
    content = {k: v for k, v in state.items() if k not in ("format", "version", "activehuber")}
    any_state = record(**dict.fromkeys(content, lambda value, where, sizes: None))
    (tmp_path / "m.skops").write_bytes(state_bytes(CROWD_FORMAT, content, any_state))
    with pytest.raises(TableError, match="is damaged"):
        load_model(tmp_path / "m.skops")
