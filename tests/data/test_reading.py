"""Tables as people have them: delimiters, encodings, gaps, mistakes."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from activehuber.data import reading
from activehuber.data.parsing import mask_of_words
from activehuber.data.reading import read_table
from activehuber.data.writing import csv_text, plain_text
from activehuber.runtime.messages import TableError


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
    text = csv_text(["x", "y"], [map(plain_text, values), values])
    table = read(tmp_path, text)
    np.testing.assert_array_equal(table.frame["x"], values)
    np.testing.assert_allclose(table.frame["y"], values, rtol=1e-6)


def test_yes_and_no(tmp_path):
    column = pd.Series(["yes", "0", None, "TRUE", " x "], dtype=object)
    assert mask_of_words(column, "t").tolist() == [True, False, False, True, True]
    with pytest.raises(TableError, match="row 1 has 'perhaps'"):
        mask_of_words(pd.Series(["perhaps"]), "t")


def test_readers_hold_no_object_of_python():
    # One that a thread of Arrow drops when Python ends aborts the process, now and then.
    before = pa.total_allocated_bytes()
    stream = reading._arrow_stream(bytes(10**6))
    assert pa.total_allocated_bytes() - before >= 10**6
    assert stream.read() == bytes(10**6)
