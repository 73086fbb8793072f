"""Tables as people have them: delimiters, encodings, gaps, mistakes; and files kept whole."""

import os
import socket
import stat

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from activehuber.data import tables
from activehuber.data.tables import TableError, csv_text, read_table, write_file, write_files


def read(tmp_path, content, name="t.csv", **options):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, **options)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends(tmp_path, delimiter, end):
    text = end.join(["a,b,c", "1,x,2.5", '"2","y y",', "3,z,-4e-1", ""]).replace(",", delimiter)
    table = read(tmp_path, text)
    assert table.frame["a"].tolist() == [1.0, 2.0, 3.0]
    assert table.frame["b"].tolist() == ["x", "y y", "z"]
    np.testing.assert_array_equal(table.frame["c"], [2.5, np.nan, -0.4])


def test_delimiter_inside_quotes_does_not_count(tmp_path):
    table = read(tmp_path, 'name;price\n"a, b, c";1\n"d, e, f";2\n')
    assert table.frame["name"].tolist() == ["a, b, c", "d, e, f"]


@pytest.mark.parametrize(
    ("encoding", "noted"),
    [("utf-8", False), ("utf-8-sig", False), ("utf-16", False), ("latin-1", True)],
)
def test_encodings(tmp_path, encoding, noted):
    table = read(tmp_path, "größe,b\n1,süß\n2,x\n".encode(encoding))
    assert list(table.frame.columns) == ["größe", "b"]
    assert table.frame["b"].tolist() == ["süß", "x"]
    assert any("Latin-1" in note for note in table.notes) == noted


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark(tmp_path, encoding):
    table = read(tmp_path, "alpha,beta\n1,x\n2,y\n".encode(encoding))
    assert table.frame["alpha"].tolist() == [1.0, 2.0]


def test_nul_bytes_are_left_out_and_said_so(tmp_path):
    table = read(tmp_path, b"a,b\n" + b"1,2\n" * 100 + b"3\x00,4\n")
    assert table.frame["a"].iloc[-1] == 3.0
    assert "1 NUL byte in the file left out." in table.notes
    with pytest.raises(TableError, match="no text file"):
        read(tmp_path, b"a,b\n" + b"\x00\x01\x02" * 10)


def test_decimal_comma(tmp_path):
    table = read(tmp_path, "a;b;c\n1,5;x;2\n-0,25;y;1.234,5\n;z;3\n")
    np.testing.assert_array_equal(table.frame["a"], [1.5, -0.25, np.nan])
    np.testing.assert_array_equal(table.frame["c"], [2.0, 1234.5, 3.0])
    assert any("decimals by a comma" in note for note in table.notes)


def test_thousands_only_where_nothing_else_can_be_meant(tmp_path):
    table = read(tmp_path, 'a,b,c\n"1,234.5","1,500",1\n"2,000","2,500",2\n7,"3,500",3\n')
    assert table.frame["a"].tolist() == [1234.5, 2000.0, 7.0]
    assert table.frame["b"].tolist() == ["1,500", "2,500", "3,500"]
    assert any(note.startswith("Column a:") for note in table.notes)


@pytest.mark.parametrize("word", ["", "NA", "n/a", "NaN", "null", "None", "?", "-", " "])
def test_words_for_nothing(tmp_path, word):
    table = read(tmp_path, f"a,b,c\n1,x,1\n{word},{word},1\n2,y,1\n")
    assert table.frame["a"].isna().tolist() == [False, True, False]
    assert table.frame["b"].isna().tolist() == [False, True, False]


def test_kinds_of_columns(tmp_path):
    table = read(
        tmp_path,
        "flag,iso,us,eu,big,mixed,under\n"
        "true,2024-02-29,12/31/2020,31.12.2020,123456789012345678901234567890,1,1_000\n"
        "False,2024-03-01T10:30:00Z,1/2/2020,1.2.2020,1e400,x,2\n",
    )
    frame = table.frame
    assert frame["flag"].tolist() == [True, False]
    assert frame["iso"].tolist() == [
        pd.Timestamp("2024-02-29"),
        pd.Timestamp("2024-03-01 10:30:00"),
    ]
    assert frame["us"].tolist() == [pd.Timestamp("2020-12-31"), pd.Timestamp("2020-01-02")]
    assert frame["eu"].tolist() == [pd.Timestamp("2020-12-31"), pd.Timestamp("2020-02-01")]
    assert frame["big"].tolist() == [1.2345678901234568e29, np.inf]
    assert frame["mixed"].tolist() == ["1", "x"]
    assert frame["under"].tolist() == ["1_000", "2"]


def test_dates_that_may_be_either_are_said_so(tmp_path):
    table = read(tmp_path, "d,x\n1/2/2020,1\n3/4/2020,2\n")
    assert table.frame["d"].iloc[0] == pd.Timestamp("2020-01-02")
    assert any("month/day/year" in note for note in table.notes)
    table = read(tmp_path, "d,x\n1/2/2020,1\n13/4/2020,2\n")
    assert table.frame["d"].iloc[0] == pd.Timestamp("2020-02-01")


def test_cells_kept_as_they_are_written(tmp_path):
    table = read(tmp_path, "id,x\n007,1\n1.0,2\n,3\n", as_text=["id"])
    assert table.frame["id"].tolist() == ["007", "1.0", None]


def test_names_are_made_distinct(tmp_path):
    table = read(tmp_path, "a,a,,a (2)\n1,2,3,4\n5,6,7,8\n")
    assert list(table.frame.columns) == ["a", "a (3)", "column 3", "a (2)"]
    assert table.repeated == {"a"}
    assert any("same name" in note for note in table.notes)


def test_empty_rows_at_the_end_go_and_others_stay(tmp_path):
    table = read(tmp_path, "a,b\n1,2\n,\n3,4\n,\n,\n")
    assert len(table.frame) == 3
    assert "2 empty rows at the end of the file left out." in table.notes


def test_newline_in_a_cell(tmp_path):
    table = read(tmp_path, 'a,b\n"x\ny",1\n"z",2\n')
    assert table.frame["a"].tolist() == ["x\ny", "z"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\ufeff\n \n", "is empty"),
        ("a,b\n", "header line but no rows"),
        ("a,b\n1,2\n1,2,3\n", "line 3: 3 cells, but the header has 2"),
        ("a,b,c\n1,2,3\n\n1,2\n", "line 4: 2 cells, but the header has 3"),
        (b"PK\x03\x04abc,def\n1,2\n", "packed or a spreadsheet"),
        (b"PAR1 nonsense", "no readable Parquet"),
        (b"\xff\xfea,b\n1", "starts like UTF-16"),
    ],
)
def test_broken_files_are_one_clear_line(tmp_path, content, message):
    with pytest.raises(TableError, match=message) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_a_long_message_is_cut_after_a_word():
    words = " ".join(["word"] * 200)
    line = tables.first_line(f"{words}\nmore")
    assert line.endswith("word …") and len(line) <= tables.LONGEST_LINE + 1
    assert tables.first_line("x" * 300) == "x" * 300
    assert tables.first_line("one\ntwo") == "one"


def test_no_file_and_a_directory(tmp_path):
    with pytest.raises(TableError, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(TableError, match="is a directory"):
        read_table(tmp_path)


def test_parquet(tmp_path):
    frame = pd.DataFrame(
        {
            "i": [1, 2],
            "s": ["a", None],
            "d": pd.to_datetime(["2024-01-01", None]),
            "l": [[1], [2]],
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", as_text=["i"])
    assert table.frame["i"].tolist() == ["1", "2"]
    assert table.frame["s"].isna().tolist() == [False, True]
    assert table.frame["d"].iloc[0] == pd.Timestamp("2024-01-01")


def test_one_hundred_thousand_columns(tmp_path):
    width = 100_000
    lines = [",".join(f"c{i}" for i in range(width)), *[",".join(["1.5"] * width)] * 2]
    table = read(tmp_path, "\n".join(lines))
    assert table.frame.shape == (2, width)
    assert float(table.frame.to_numpy().sum()) == 3.0 * width


def test_reading_what_was_written_gives_the_same_numbers(tmp_path, rng):
    values = rng.normal(size=200) * 10.0 ** rng.integers(-20, 20, 200)
    text = csv_text(["x", "y"], [map(tables.plain_text, values), values])
    table = read(tmp_path, text)
    np.testing.assert_array_equal(table.frame["x"], values)
    np.testing.assert_allclose(table.frame["y"], values, rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        *["=1+1", "+x", "-x", "@f", "\tx", "\rx", "-1+2", "＝x", "+"],
        # Behind what a spreadsheet may drop: marks of byte order, spaces, controls, fillers.
        *["\ufeff=1+1", " =1", "\u200b\u2060@f", "\xa0\u3000+x", "\x00-x", "\u2028=x"],
        *["\ufe0f=x", "\u3164=x", "\u202e=x", "\ufeff \t\ufeff=x", "\ufeff-1", " \n=x"],
        # Other forms of the same characters.
        *["﹦x", "⁼x", "﹢x", "﹣x", "−x", "﹫x", "\ufeff＝x"],
    ],
)
def test_formulas_are_neutralised(text):
    line = csv_text(["a"], [[text]]).split("\n", 1)[1]
    assert line.strip().strip('"').startswith("'")
    assert csv_text([text], [[]]).strip().strip('"').startswith("'")


@pytest.mark.parametrize(
    "text", ["-3.5", "+2", "-1e-7", "x=1", "1-2", " -3", " x", "\ufeffx", "·", "ä=1", "(=1)"]
)
def test_numbers_and_other_text_are_not(text):
    assert csv_text(["a"], [[text]]) == f"a\n{text}\n"


def test_numbers_in_csv():
    values = [1.0, -2.5, 1 / 3, 1e-9, np.nan, None, 123456789.0]
    lines = csv_text(["x", "y"], [values, ["z"] * 7]).split("\n")
    assert lines[1:-1] == [
        "1,z", "-2.5,z", "0.3333333,z", "1e-09,z", ",z", ",z", "1.234568e+08,z"
    ]  # fmt: skip


def test_files_appear_whole_and_together(tmp_path):
    out = tmp_path / "deep" / "out"
    write_files(out, {"a": b"1", "b": b"2"})
    assert {item.name: item.read_bytes() for item in out.iterdir()} == {"a": b"1", "b": b"2"}
    assert [item.name for item in out.parent.iterdir()] == ["out"]
    (tmp_path / "like").mkdir()
    assert out.stat().st_mode == (tmp_path / "like").stat().st_mode


def test_nothing_is_replaced_without_force(tmp_path):
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(TableError, match=r"b exists; use --force"):
        write_files(tmp_path, {"a": b"1", "b": b"2"})
    assert [item.name for item in tmp_path.iterdir()] == ["b"]
    write_files(tmp_path, {"a": b"1", "b": b"2"}, force=True)
    assert (tmp_path / "b").read_bytes() == b"2"
    with pytest.raises(TableError, match="exists"):
        write_file(tmp_path / "a", b"3", force=False)


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(path, content):
        path.write_bytes(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "_write_synced", full)
    with pytest.raises(TableError, match="No space left"):
        write_files(tmp_path / "out", {"a": b"123"})
    with pytest.raises(TableError, match="No space left"):
        write_file(tmp_path / "a", b"123")
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TableError, match="is a file"):
        tables.check_outputs(tmp_path / "file", ["a"], force=True)
    with pytest.raises(TableError, match="cannot be written"):
        tables.check_outputs(tmp_path / "file" / "sub", ["a"], force=True)
    with pytest.raises(TableError, match="is a directory"):
        write_file(tmp_path, b"")
    with pytest.raises(TableError, match="cannot be written"):
        write_file(tmp_path / "file" / "sub", b"")


def test_yes_and_no(tmp_path):
    column = pd.Series(["yes", "0", None, "TRUE", " x "], dtype=object)
    assert tables.mask_of_words(column, "t").tolist() == [True, False, False, True, True]
    with pytest.raises(TableError, match="row 1 has 'perhaps'"):
        tables.mask_of_words(pd.Series(["perhaps"]), "t")


def test_readers_hold_no_object_of_python():
    # One that a thread of Arrow drops when Python ends aborts the process, now and then.
    before = pa.total_allocated_bytes()
    stream = tables._arrow_stream(bytes(10**6))
    assert pa.total_allocated_bytes() - before >= 10**6
    assert stream.read() == bytes(10**6)


def make_device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except (AttributeError, PermissionError):
        pytest.skip("devices cannot be made here")


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # relative, since such paths must be short


MAKERS = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": make_device,
    "a link": lambda path: path.symlink_to("nothing"),
    "a link ": lambda path: path.symlink_to(path.parent / "plain"),
    "a directory": os.mkdir,
}


@pytest.mark.skipif(os.name == "nt", reason="there are none of these")
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
def test_only_plain_files_are_replaced(kind, force, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("mine")
    path = tmp_path / "x"
    MAKERS[kind](path)
    before = path.lstat()
    for write in (
        lambda: write_file(path, b"new", force=force),
        lambda: write_files(tmp_path, {"new": b"1", "x": b"2"}, force=force),
    ):
        with pytest.raises(TableError, match=f"x is {kind.strip()}"):
            write()
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["plain", "x"]
    assert (tmp_path / "plain").read_text() == "mine"


def test_a_folder_may_be_a_link_but_not_to_nothing(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("there", "nowhere"):
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
    write_files(tmp_path / "to there", {"a": b"1"})
    assert (tmp_path / "there" / "a").read_bytes() == b"1"
    with pytest.raises(TableError, match="is a link; choose another folder"):
        write_files(tmp_path / "to nowhere", {"a": b"1"})


def test_drafts_of_a_folder_that_is_there_are_in_it(tmp_path):
    """It may be a disk of its own, and the folder around it may be closed to us."""
    out = tmp_path / "out"
    out.mkdir()
    seen = []

    def parts():
        seen.extend(item.name for item in tmp_path.iterdir())
        yield b"1"

    write_files(out, {"a": parts()})
    assert seen == ["out"] and [item.name for item in out.iterdir()] == ["a"]


def test_a_name_may_be_as_long_as_the_system_takes(tmp_path):
    path = tmp_path / ("n" * 251 + ".csv")
    write_file(path, b"1")
    assert path.read_bytes() == b"1" and list(tmp_path.iterdir()) == [path]


def test_drafts_are_new_files(tmp_path, monkeypatch):
    """Whoever guesses the name of a draft cannot make us write elsewhere."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".activehuber-guessed.tmp").symlink_to(tmp_path / "mine")
    with pytest.raises(TableError, match="cannot be written: File exists"):
        write_file(tmp_path / "x", b"new")
    assert (tmp_path / "mine").read_text() == "mine"
