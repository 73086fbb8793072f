"""Plain values and arrays in a file, read with bounds on all that a file could claim.

The file is a ZIP archive of a text in JSON and of arrays as NumPy writes them. Nothing of it is
believed: its parts must be those that would be written, its text is measured before it is
parsed, and an array is read only when whoever asked for the values has seen its shape and found
it to fit. No code is run, whatever a file holds.
"""

from __future__ import annotations

import io
import json
import re
import stat
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from activehuber.persistence.schema import Header
from activehuber.runtime.memory import memory_limit
from activehuber.runtime.messages import TableError, first_line

# Bytes of the text at most, and values in it: each may take a hundred bytes.
MOST_TEXT, MOST_VALUES = 2**25, 2**20
# Bytes that are never read at once (the directory of an archive is), and that are.
LIMIT, PIECE = 2**24, 2**20
# Copies of all arrays that are held while a model is made of them.
COPIES = 3
# Digits of a whole number, letters of a word in an array.
MOST_DIGITS, LONGEST_WORD = 19, 2**14
# The key that stands for an array among the values.
ARRAY = "array of the file"
# The part with the text; of files before format 7, which were ones of skops, it was another.
TEXT, OLD_TEXT = "values.json", "schema.json"
NPY = b"\x93NUMPY\x01\x00"
HEADER = re.compile(
    r"\{'descr': '([<>|](?:[biuf][1248]|U\d{1,6}))', 'fortran_order': (?:True|False), "
    r"'shape': \(((?:\d{1,15}, ?)*(?:\d{1,15})?)\), \} *\n"
)


def pack(state: dict[str, Any]) -> bytes:
    """The content of a file with plain values and arrays, and nothing else."""
    parts: dict[str, bytes] = {}

    def instead(value: Any) -> Any:
        """What JSON can hold in place of an array, or of a number of NumPy's."""
        if isinstance(value, np.generic):
            return value.item()
        part = io.BytesIO()
        np.save(part, value, allow_pickle=False)
        name = f"{len(parts)}.npy"
        parts[name] = part.getvalue()
        return {ARRAY: name}

    text = json.dumps(state, default=instead)
    _check_text(text)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in {**parts, TEXT: text.encode()}.items():
            # Of no date: nothing in a file depends on when or where it was written.
            part = zipfile.ZipInfo(name)
            archive.writestr(part, content, zipfile.ZIP_DEFLATED, compresslevel=1)
    return made.getvalue()


def unpack(path: Path, check: Callable[[Any], None]) -> Any:
    """The values of a file, any other than one of `pack` is refused.

    Parameters
    ----------
    path : Path
    check : callable
        Raises ValueError if values are not as they must be; called before arrays are read,
        with a `Header` in place of each, and once more with the arrays.
    """
    foreign = f"{path.name} is no model file of activehuber, or is damaged; it was not opened"
    try:
        if path.is_dir():
            raise TableError(f"{path} is a directory; give the file model.skops in it")
        if not stat.S_ISREG(path.stat().st_mode):
            raise TableError(f"{path} is no file")
        with _Careful(path) as stream, zipfile.ZipFile(stream) as archive:
            if OLD_TEXT in archive.namelist():
                raise TableError(
                    f"{path.name} is no model file of this version of activehuber, but of an "
                    "earlier one or of skops; use that, or make the model again"
                )
            return _unpack(archive, check)
    except FileNotFoundError:
        raise TableError(f"{path}: there is no such file") from None
    except MemoryError as error:
        raise TableError(f"{path.name} needs more memory than there is ({error})") from None
    except DamagedError as error:
        raise TableError(f"{path.name} is damaged: {first_line(error)}") from None
    except TableError:
        raise
    except PermissionError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception:
        # Whatever the bytes of an archive or of JSON make their readers raise.
        raise TableError(foreign) from None


def available_memory() -> float:
    """Bytes that can still be had; inf if not known."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(line for line in lines if line.startswith("MemAvailable:"))
        return min(memory_limit(), 1024.0 * float(free.split()[1]))
    except (OSError, StopIteration, ValueError):
        return memory_limit()


class DamagedError(ValueError):
    """A file of ours that is not as it must be."""


class _Careful(io.FileIO):
    """A file that is not read in one piece, whatever size its content claims to have."""

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size if size is not None and 0 <= size < LIMIT else LIMIT) or b""
        if len(found) == LIMIT:
            raise zipfile.BadZipFile
        return found


def _unpack(archive: zipfile.ZipFile, check: Callable[[Any], None]) -> Any:
    parts = archive.infolist()
    names = [f"{number}.npy" for number in range(len(parts) - 1)]
    if sorted(archive.namelist()) != sorted([TEXT, *names]):
        raise zipfile.BadZipFile
    if not {part.compress_type for part in parts} <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise zipfile.BadZipFile
    if archive.getinfo(TEXT).file_size > MOST_TEXT:
        raise DamagedError("its text is far too long")
    with archive.open(TEXT) as stream:
        text = b"".join(iter(partial(stream.read, PIECE), b"")).decode("ascii")

    def checked(arrays: dict[str, Any]) -> Any:
        state = _parsed(text, arrays)
        try:
            check(state)
        except TableError:
            raise
        except ValueError as error:
            raise DamagedError(error) from None
        return state

    headers = {name: _header(archive, name) for name in names}
    checked(headers)
    needed = COPIES * sum(each.count * each.dtype.itemsize for each in headers.values())
    if needed > available_memory():
        raise MemoryError(f"{needed / 2**30:.1f} GiB")
    return checked({name: _array(archive, name) for name in names})


# --- the text ---------------------------------------------------------------------------


def _check_text(text: str) -> None:
    if len(text) > MOST_TEXT or not text.isascii():
        raise DamagedError("its text is far too long")
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise DamagedError("it has far too many values")


def _parsed(text: str, arrays: Mapping[str, Any]) -> Any:
    """The values, with each of `arrays` in the one place that names it."""
    named: list[str] = []

    def hook(found: dict[str, Any]) -> Any:
        if ARRAY not in found:
            return found
        named.append(found[ARRAY])
        return arrays[found[ARRAY]]

    _check_text(text)
    state = json.loads(text, object_hook=hook, parse_int=_whole)
    if sorted(named) != sorted(arrays):
        raise DamagedError("its arrays are not those that its values name")
    return state


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS + 1:
        raise DamagedError("a whole number in it has too many digits")
    return int(digits)


# --- arrays -----------------------------------------------------------------------------


def _header(archive: zipfile.ZipFile, name: str) -> Header:
    """What an array says of itself; the size of its part must agree."""
    with archive.open(name) as stream:
        start = stream.read(len(NPY) + 2)
        size = int.from_bytes(start[len(NPY) :], "little")
        said = HEADER.fullmatch(stream.read(size).decode("latin-1"))
    if said is None or not start.startswith(NPY):
        raise DamagedError(f"{name} is no array of numbers or words")
    dtype, shape = np.dtype(said[1]), tuple(int(side) for side in re.findall(r"\d+", said[2]))
    header = Header(dtype, shape)
    if dtype.kind == "U" and dtype.itemsize > 4 * LONGEST_WORD:
        raise DamagedError(f"{name} has words that are far too long")
    if len(start) + size + header.count * dtype.itemsize != archive.getinfo(name).file_size:
        raise DamagedError(f"{name} has not the size that its shape {shape} asks for")
    return header


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as stream:
        out = np.lib.format.read_array(stream, allow_pickle=False)
    raw, kind = out.ravel(order="K"), out.dtype.kind
    letters = np.dtype("u4").newbyteorder(out.dtype.byteorder)
    if kind == "b" and np.any(raw.view(np.uint8) > 1):
        raise DamagedError(f"{name} has flags that are neither true nor false")
    if kind == "U" and np.any(raw.view(letters) > 0x10FFFF):
        raise DamagedError(f"{name} has letters that there are not")
    return out
