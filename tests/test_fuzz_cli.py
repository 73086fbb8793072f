"""Thousands of broken tables: exit 0 with whole files, or 2 with one line; never more."""

import time

import numpy as np
import pytest

from activehuber.cli import FILES, run
from activehuber.persistence import load_model

WORDS = [
    "a",
    "b",
    "red",
    "blue",
    "",
    "NA",
    "=1+1",
    "-x",
    "@y",
    "+z",
    '"',
    "ä",
    "日本",
    "a b",
    "'",
]
NUMBERS = [
    "0",
    "1",
    "2.5",
    "-3",
    "1e3",
    "1e400",
    "inf",
    "-inf",
    "nan",
    "9" * 40,
    "",
    " 7 ",
    "1_0",
]
ODD = ["1,5", "1.234,5", "1,234.5", "12,345,678", "0x10", "1e-320", "True", "false", "?", "\t"]
DATES = ["2024-01-31", "2023-12-01 10:30", "31/12/2020", "1/2/2020", "3.4.2021", "2024-13-01"]


def make_file(rng: np.random.Generator) -> tuple[bytes, list[str]]:
    """A table that may be fine, odd or broken, and arguments for it."""
    n_rows = 0 if rng.random() < 0.03 else int(rng.choice([1, 3, 6, 8, 12, 15, 20, 25]))
    n_columns = int(rng.choice([1, 2, 3, 3, 4, 5, 6]))
    names = [f"c{i}" for i in range(n_columns)]
    if rng.random() < 0.1:
        names[int(rng.integers(n_columns))] = str(rng.choice(["", "c0", "=x", "ü", "given"]))
    columns = [make_column(rng, n_rows) for _ in names]
    place = int(rng.integers(n_columns))
    if rng.random() < 0.7:  # a target that can be learnt, so that much is written, too
        cells = [f"{value:.2f}" for value in rng.normal(size=n_rows)]
        columns[place] = [cell if rng.random() < 0.8 else "" for cell in cells]
    delimiter = str(rng.choice([",", ",", ",", ";", "\t", "|"]))
    quote = rng.random() < 0.3
    rows = [names, *map(list, zip(*columns, strict=True))]
    if rng.random() < 0.07 and len(rows) > 1:
        rows[int(rng.integers(1, len(rows)))].append("extra")
    if rng.random() < 0.05 and len(rows) > 1:
        del rows[int(rng.integers(1, len(rows)))][0]
    end = str(rng.choice(["\n", "\n", "\r\n", "\r"]))
    text = end.join(
        delimiter.join(quoted(cell) if quote else cell for cell in row) for row in rows
    )
    text += end * int(rng.integers(0, 3))
    encoding = str(
        rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
    )
    content = bytearray(text.encode(encoding, "replace"))
    if rng.random() < 0.15:
        for _ in range(int(rng.integers(1, 4))):
            content.insert(int(rng.integers(len(content) + 1)), int(rng.integers(256)))
    if rng.random() < 0.05:
        content = content[: int(rng.integers(len(content) + 1))]
    if rng.random() < 0.03:
        content = bytearray(rng.bytes(int(rng.integers(0, 200))))
    if rng.random() < 0.03:
        content = bytearray(b"PAR1") + content
    return bytes(content), make_arguments(rng, place, n_columns)


def make_column(rng: np.random.Generator, n_rows: int) -> list[str]:
    kind = rng.random()
    if kind < 0.55:
        values = np.round(rng.normal(size=n_rows) * 10.0 ** rng.integers(-3, 6), 3)
        cells = [str(value) for value in values]
    elif kind < 0.65:
        cells = [str(value) for value in rng.integers(0, 3, n_rows)]
    elif kind < 0.75:
        cells = [str(rng.choice(WORDS)) for _ in range(n_rows)]
    elif kind < 0.85:
        cells = [str(rng.choice(NUMBERS)) for _ in range(n_rows)]
    elif kind < 0.95:
        cells = [
            str(rng.choice(DATES[:2] if rng.random() < 0.9 else DATES)) for _ in range(n_rows)
        ]
    else:
        cells = [f"id{i}" for i in range(n_rows)]
    for row in range(n_rows):
        if rng.random() < 0.05:
            cells[row] = str(rng.choice(["", *WORDS, *NUMBERS, *ODD, *DATES]))
        elif rng.random() < 0.1:
            cells[row] = ""
    return cells


def make_arguments(rng: np.random.Generator, place: int, n_columns: int) -> list[str]:
    target = "nope" if rng.random() < 0.03 else f"c{place}"
    out = ["--target", target]
    for option, chance in (("--id", 0.15), ("--trusted", 0.08), ("--drop", 0.1)):
        if rng.random() < chance:
            out += [option, f"c{rng.integers(n_columns)}"]
    return out + ["--classify"] * (rng.random() < 0.2) + ["--json"] * (rng.random() < 0.3)


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def check(folder, content: bytes, arguments: list[str], capsys) -> int:
    """Run one file; raise unless the outcome is one that a user may see."""
    path, out = folder / "table.csv", folder / "out"
    path.write_bytes(content)
    started = time.perf_counter()
    code = run(["audit", str(path), *arguments, "-o", str(out)])
    seconds = time.perf_counter() - started
    printed, errors = capsys.readouterr()
    present = sorted(item.name for item in folder.iterdir())
    assert seconds < 20.0
    if code == 2:
        assert errors.startswith("activehuber: ") and errors.count("\n") == 1, errors
        assert "bug" not in errors, errors
        assert printed == ""
        assert present == ["table.csv"]
        return code
    assert code == 0 and errors == ""
    assert present == ["out", "table.csv"]
    assert sorted(item.name for item in out.iterdir()) == sorted(FILES)
    assert (out / "report.html").read_text().rstrip().endswith("</html>")
    assert (out / "labels.csv").read_text().endswith("\n")
    load_model(out / "model.skops")
    for item in out.iterdir():
        item.unlink()
    out.rmdir()
    return code


def fuzz(seeds, tmp_path, capsys) -> list[int]:
    codes = []
    for seed in seeds:
        content, arguments = make_file(np.random.default_rng(seed))
        try:
            codes.append(check(tmp_path, content, arguments, capsys))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {arguments} {content!r}: {error}") from error
    return codes


def test_150_files(tmp_path, capsys):
    codes = fuzz(range(150), tmp_path, capsys)
    # A fuzzer that only ever meets one outcome tests nothing.
    assert min(codes.count(0), codes.count(2)) >= 25


@pytest.mark.slow
def test_5000_files(tmp_path, capsys):
    codes = fuzz(range(1_000, 6_000), tmp_path, capsys)
    assert min(codes.count(0), codes.count(2)) >= 1_000
