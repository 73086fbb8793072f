"""counts.csv: as people write it, with one clear line for each mistake, and written back."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from activehuber.crowd.counts import counts_csv, read_counts
from activehuber.crowd.frames import Frames
from activehuber.runtime.files import write_file
from activehuber.runtime.messages import TableError

NUMBERS = tuple(range(801, 851))
FRAMES = Frames(Path("cam"), NUMBERS, tuple(f"{n}.jpg" for n in NUMBERS), 24, 32)
# Twelve good lines, the header included, so that line 13 is the next.
GOOD = "".join(f"{801 + i},{i + 1}\n" for i in range(11))


def read(tmp_path, text, name="counts.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_counts(path, FRAMES)


def wrong(tmp_path, text, name="counts.csv"):
    """The one line that is said, without the folder."""
    with pytest.raises(TableError) as caught:
        read(tmp_path, text, name)
    line = str(caught.value)
    assert "\n" not in line and line.startswith(str(tmp_path))
    return line.removeprefix(f"{tmp_path}{os.sep}")


# --- reading ----------------------------------------------------------------------------


def test_counts_are_put_beside_their_frames(tmp_path):
    found = read(tmp_path, f"frame,count\n850,7.5\n{GOOD}849,\n820,0\n")
    assert found.names == ("count",) and found.notes == ()
    wanted = np.full((50, 1), np.nan)
    wanted[:11, 0] = np.arange(1, 12)
    wanted[49], wanted[19] = 7.5, 0.0
    np.testing.assert_array_equal(found.values, wanted)


def test_directions_in_any_order_beside_other_columns(tmp_path):
    rows = "".join(f"x,{2 * i},{i},{801 + i}\n" for i in range(12))
    found = read(tmp_path, f"who, RIGHT ,Le ft,Frame\n{rows}y,3,,830\n")
    assert found.names == ("left", "right")
    np.testing.assert_array_equal(found.values[:12], np.outer(np.arange(12), [1, 2]))
    np.testing.assert_array_equal(found.values[29], [np.nan, 3])
    assert np.all(np.isnan(found.values[12:29]))


def test_directions_win_over_their_total(tmp_path):
    rows = "".join(f"{801 + i},{3 * i},{i},{2 * i}\n" for i in range(12))
    found = read(tmp_path, f"frame,count,left,right\n{rows}")
    assert found.names == ("left", "right")
    line = wrong(tmp_path, f"frame,count,left,right\n{rows}830,5,,\n")
    assert line.startswith("counts.csv, line 14: a count, but neither left nor right")


def test_semicolons_and_decimal_commas(tmp_path):
    rows = "".join(f"{801 + i};{i},5\n" for i in range(12))
    found = read(tmp_path, f"\ufeffframe;count\n{rows}")
    np.testing.assert_array_equal(found.values[:12, 0], np.arange(12) + 0.5)
    assert any("decimals by a comma" in note for note in found.notes)
    line = wrong(tmp_path, f"frame;count\n{rows}830;many\n")
    assert line.startswith("counts.csv, line 14: 'many' in 'count' is not a number")


def test_parquet(tmp_path):
    table = pd.DataFrame({"frame": range(801, 813), "count": range(12)})
    path = tmp_path / "counts.parquet"
    table.to_parquet(path)
    np.testing.assert_array_equal(read_counts(path, FRAMES).values[:12, 0], np.arange(12))
    table.assign(frame=[*range(801, 812), 9]).to_parquet(path)
    with pytest.raises(TableError, match=r"counts.parquet, row 12: 1 count is for frames that"):
        read_counts(path, FRAMES)


def test_lines_without_a_count_need_no_frame(tmp_path):
    found = read(tmp_path, f"frame,count\n{GOOD}9000,\n,\n801,\n812,4\n")
    assert np.sum(~np.isnan(found.values)) == 12


# --- frames by the names of their files ---------------------------------------------------

NAMED = "".join(f"{801 + i}.jpg,{i + 1}\n" for i in range(11))


@pytest.mark.parametrize("folder", ["", "./", "cam/", "/data/day 2/cam/", "D:\\cam\\"])
def test_frames_by_file_name(tmp_path, folder):
    rows = "".join(f"{folder}{row}\n" for row in reversed(NAMED.splitlines()))
    found = read(tmp_path, f"frame,count\n{rows}")
    np.testing.assert_array_equal(found.values[:11, 0], np.arange(1, 12))
    assert np.all(np.isnan(found.values[11:]))


def test_names_count_and_not_the_digits_in_them(tmp_path):
    names = tuple(f"{n} of day {n % 3}.jpg" for n in NUMBERS)
    frames = Frames(Path("cam"), tuple(range(1, 51)), names, 24, 32)
    path = tmp_path / "counts.csv"
    path.write_text("frame,count\n" + "".join(f"{names[4 * i]},{i}\n" for i in range(12)))
    found = read_counts(path, frames).values[:, 0]
    np.testing.assert_array_equal(found[:48:4], np.arange(12))
    assert np.sum(~np.isnan(found)) == 12


def test_names_without_a_count_need_no_frame(tmp_path):
    found = read(tmp_path, f"frame,count\n{NAMED}other.jpg,\n,\n801.jpg,\n")
    assert np.sum(~np.isnan(found.values)) == 11


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "900.jpg,2",
            "1 count is for frames that do not exist in cam: 900.jpg (it has 50 frames, "
            "801.jpg to 850.jpg); mend or delete",
        ),
        (
            "cam2/820.jpg,2",
            "1 count is for frames that do not exist in cam: cam2/820.jpg (it has 50 frames, "
            "801.jpg to 850.jpg); mend or delete",
        ),
        (
            "820,2",
            "'820' in 'frame' is a number, others are file names; give frame numbers from 1 or "
            "file names, not both",
        ),
        ("cam/803.jpg,2", "two counts for one frame (803); delete one of them"),
    ],
)
def test_wrong_names_are_told_with_their_line(tmp_path, more, words):
    assert wrong(tmp_path, f"frame,count\n{NAMED}{more}\n") == f"counts.csv, line 13: {words}"


def test_frames_of_a_video_have_no_names(tmp_path):
    video = tmp_path / "video.avi"
    video.write_bytes(b"")
    frames = Frames(video, NUMBERS, ("video.avi",) * 50, 24, 32)
    path = tmp_path / "counts.csv"
    path.write_text(f"frame,count\n{NAMED}")
    with pytest.raises(TableError, match=r"'801.jpg' in 'frame' is not a number; give frame"):
        read_counts(path, frames)


# --- mistakes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("820,many", "'many' in 'count' is not a number; leave it empty if not counted"),
        ("820,-2", "a count of -2 in 'count' is negative; leave it empty if not counted"),
        (
            "820,inf",
            "a count of inf in 'count' is more than 1,000,000; leave it empty if not counted",
        ),
        ("820.5,2", "frame 820.5 is not a whole number; give frame numbers from 1"),
        ("inf,2", "frame inf is not a whole number; give frame numbers from 1"),
        (
            "seq_820,2",
            "'seq_820' in 'frame' is not a number, as others are; give frame numbers from 1 or "
            "file names, not both",
        ),
        (",2", "a count without a frame; give it, or delete the line"),
        ("803,3", "two counts for one frame (803); delete one of them"),
        (
            "1,3",
            "1 count is for frames that do not exist in cam: 1 (it has 50 frames, 801 to 850); "
            "mend or delete",
        ),
        (
            "\n".join(f"{n},3" for n in range(1, 8)),
            "7 counts are for frames that do not exist in cam: 1, 2, 3, 4, 5 and 2 more (it "
            "has 50 frames, 801 to 850); mend or delete",
        ),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_mistakes_are_named_with_their_line(tmp_path, more, words, encoding):
    text = f"frame,count\n{GOOD}{more}\n".encode(encoding)
    assert wrong(tmp_path, text) == f"counts.csv, line 13: {words}"


def test_line_is_that_of_the_file(tmp_path):
    text = f"note,frame,count\n\n{GOOD}".replace("\n8", "\n,8")
    assert ", line 16: " in wrong(tmp_path, f'{text}\n"two\nlines",803,5\n')


def test_yes_and_no_are_no_counts(tmp_path):
    rows = "".join(f"{801 + i},{i % 2 == 0}\n" for i in range(12))
    assert ", line 2: 'True' in 'count' is not" in wrong(tmp_path, f"frame,count\n{rows}")


@pytest.mark.parametrize("header", ["frame,number", "count,x", "frame,left", "time,left,right"])
def test_missing_columns(tmp_path, header):
    row = ",".join(["1"] * len(header.split(",")))
    line = wrong(tmp_path, f"{header}\n{row}\n")
    assert line == (
        "counts.csv, line 1: it needs columns frame and count, or frame, left and right; it "
        f"has {header.replace(',', ', ')}"
    )


@pytest.mark.parametrize("header", ["frame,count,count", "frame,count,Count "])
def test_repeated_columns(tmp_path, header):
    line = wrong(tmp_path, f"{header}\n1,2,3\n")
    assert line == "counts.csv: several columns are named 'count'; rename or delete one"


def test_too_few_counts(tmp_path):
    nine = "".join(f"{801 + i},{i + 1}\n" for i in range(9))
    line = wrong(tmp_path, f"frame,count\n{nine}820,\n")
    assert line.startswith("counts.csv: 9 frames have a number in 'count'; count at least 10")
    found = read(tmp_path, f"frame,count\n{nine}820,4\n")
    assert np.sum(~np.isnan(found.values)) == 10
    uneven = "".join(f"{801 + i},1,{'2' if i == 5 else ''}\n" for i in range(20))
    assert "1 frame has a number in 'right'" in wrong(tmp_path, f"frame,left,right\n{uneven}")


# --- writing ----------------------------------------------------------------------------


def test_written_counts_are_read_back(tmp_path):
    path = tmp_path / "new" / "out.csv"
    values = np.linspace(0, 30, 50)
    values[3] = np.nan
    columns = {"count": values, "lower": values - 1, "upper": values + 1}
    write_file(path, counts_csv(NUMBERS, columns))
    lines = path.read_text().splitlines()
    assert lines[0] == "frame,count,lower,upper"
    assert lines[4] == "804,,,"
    assert len(lines) == 51 and os.listdir(path.parent) == ["out.csv"]
    np.testing.assert_allclose(read_counts(path, FRAMES).values[:, 0], values, rtol=1e-6)


def test_columns_of_another_length_write_nothing(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        write_file(tmp_path / "out.csv", counts_csv((1, 2, 3), {"count": np.zeros(2)}))
    assert os.listdir(tmp_path) == []
