"""Plain values and arrays in a file: what comes back, and what is refused before it is read."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from activehuber.persistence import archive
from activehuber.persistence.archive import pack, unpack
from activehuber.runtime.messages import TableError


def anything(state):
    """No rule at all."""


def written(folder, content, name="model.skops"):
    path = folder / name
    path.write_bytes(content)
    return path


def changed(content, part, new):
    """The same archive with another content of a part."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as made:
        for each in old.infolist():
            made.writestr(each.filename, new if each.filename == part else old.read(each))
    return out.getvalue()


def npy(value):
    part = io.BytesIO()
    np.save(part, value, allow_pickle=False)
    return part.getvalue()


STATE = {
    "name": "naïve 日",
    "numbers": [1, -(2**62), 0.1, None, True, float("inf")],
    "deep": {"rows": np.arange(6.0).reshape(2, 3), "flags": np.array([True, False])},
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "words": np.array(["a", "ß", "日本"]),
    "none": np.zeros((0, 3)),
    "small": np.int8([1, -1]),
}


def test_values_come_back_as_they_were(tmp_path):
    found = unpack(written(tmp_path, pack(STATE)), anything)
    assert list(found) == list(STATE)
    assert found["name"] == STATE["name"] and found["numbers"] == STATE["numbers"]
    for mine, its in (
        (STATE["deep"]["rows"], found["deep"]["rows"]),
        (STATE["deep"]["flags"], found["deep"]["flags"]),
        *((STATE[key], found[key]) for key in ("fortran", "words", "none", "small")),
    ):
        assert its.dtype == mine.dtype
        np.testing.assert_array_equal(its, mine)
    assert found["fortran"].flags.f_contiguous


def test_numbers_of_numpy_are_plain_ones():
    assert pack({"x": np.float64(0.5), "n": np.int64(3)}) == pack({"x": 0.5, "n": 3})


def test_the_rule_is_asked_before_arrays_are_read_and_after(tmp_path):
    seen = []
    unpack(written(tmp_path, pack(STATE)), lambda state: seen.append(state["words"]))
    before, after = seen
    assert isinstance(before, archive.Header) and before.shape == (3,)
    assert isinstance(after, np.ndarray)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_what_is_no_file_is_not_opened(tmp_path):
    with pytest.raises(TableError, match="is a directory; give the file"):
        unpack(tmp_path, anything)
    with pytest.raises(TableError, match="there is no such file"):
        unpack(tmp_path / "nowhere", anything)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TableError, match=r"pipe is no file$"):
        unpack(pipe, anything)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(["x" * (2**14 + 1)]), "has words that are far too long"),
        (np.array(["x"]).view(np.uint32) * 0 + 0x110000, "has letters that there are not"),
        (np.array([2], dtype=np.uint8), "has flags that are neither true nor false"),
    ],
)
def test_arrays_that_are_none_of_ours(tmp_path, array, message):
    if array.dtype == np.uint32:
        array = npy(array).replace(b"'<u4'", b"'<U1'")
    elif array.dtype == np.uint8:
        array = npy(array).replace(b"'|u1'", b"'|b1'")
    else:
        array = npy(array)
    content = changed(pack({"x": np.array(["y"])}), "0.npy", array)
    with pytest.raises(TableError, match=message):
        unpack(written(tmp_path, content), anything)


def test_the_longest_word_and_the_last_letter_are_ours(tmp_path):
    for words in (np.array(["x" * 2**14]), np.array(["\U0010ffff"])):
        found = unpack(written(tmp_path, pack({"x": words})), anything)
        np.testing.assert_array_equal(found["x"], words)


def test_sizes_must_agree(tmp_path):
    whole = npy(np.zeros(4))
    for wrong in (whole[:-8], whole + bytes(8), whole.replace(b"(4,)", b"(5,)")):
        content = changed(pack({"x": np.zeros(4)}), "0.npy", wrong)
        with pytest.raises(TableError, match="has not the size that its shape"):
            unpack(written(tmp_path, content), anything)


def test_parts_must_be_those_that_are_named(tmp_path):
    content = pack({"x": np.zeros(2)})
    more = io.BytesIO(content)
    with zipfile.ZipFile(more, "a") as made:
        made.writestr("1.npy", npy(np.zeros(2)))
    with pytest.raises(TableError, match=r"damaged"):
        unpack(written(tmp_path, more.getvalue()), anything)
    twice = io.BytesIO(content)
    with zipfile.ZipFile(twice, "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("0.npy", npy(np.ones(2)))
    with pytest.raises(TableError, match="it was not opened"):
        unpack(written(tmp_path, twice.getvalue()), anything)


@pytest.mark.parametrize("digits", [19, 20, 21])
def test_whole_numbers_have_so_many_digits(tmp_path, digits):
    text = json.dumps({"x": 12345})
    assert archive._parsed(text, {}) == {"x": 12345}
    number = "9" * digits
    if digits <= archive.MOST_DIGITS + 1:
        assert archive._parsed(f'{{"x": {number}}}', {}) == {"x": int(number)}
    else:
        with pytest.raises(ValueError, match="a whole number in it has too many digits"):
            archive._parsed(f'{{"x": {number}}}', {})


def test_text_is_ascii_and_not_too_long(monkeypatch):
    with pytest.raises(ValueError, match="its text is far too long"):
        archive._check_text('"é"')
    monkeypatch.setattr(archive, "MOST_TEXT", 10)
    archive._check_text('"12345678"')
    with pytest.raises(ValueError, match="its text is far too long"):
        archive._check_text('"123456789"')
    monkeypatch.setattr(archive, "MOST_VALUES", 3)
    archive._check_text("[1,2,3]")
    with pytest.raises(ValueError, match="it has far too many values"):
        archive._check_text("[1,2,3,4]")


def test_memory_that_can_be_had(monkeypatch):
    told = "MemTotal: 900 kB\nMemFree: 5 kB\nMemAvailable:   300 kB\n"
    monkeypatch.setattr(Path, "read_text", lambda self: told)
    monkeypatch.setattr(archive, "memory_limit", lambda: 1e9)
    assert archive.available_memory() == 300 * 1024
    monkeypatch.setattr(archive, "memory_limit", lambda: 7.0)
    assert archive.available_memory() == 7.0
    monkeypatch.setattr(Path, "read_text", lambda self: "nothing")
    assert archive.available_memory() == 7.0


def test_as_much_memory_as_is_needed_is_enough(tmp_path, monkeypatch):
    path = written(tmp_path, pack({"x": np.zeros(1000)}))
    needed = archive.COPIES * 8000
    monkeypatch.setattr(archive, "available_memory", lambda: float(needed))
    unpack(path, anything)
    monkeypatch.setattr(archive, "available_memory", lambda: needed - 1.0)
    with pytest.raises(TableError, match="needs more memory than there is"):
        unpack(path, anything)
