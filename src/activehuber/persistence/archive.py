"""Plain values and arrays in a file, read with bounds on all that a file could claim.

The file is one that skops writes for a dict with a text and arrays, made and read here without
it. Nothing of a file is believed: its parts must be those that would be written, its text is
measured before it is parsed, and an array is read only when whoever asked for the values has
seen its shape and found it to fit. No code is run, whatever a file holds.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from activehuber.persistence.schema import Header
from activehuber.runtime.memory import memory_limit
from activehuber.runtime.messages import TableError, first_line

# The layout of skops files that is written; skops reads this one and later ones.
SKOPS_PROTOCOL = 2
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
TEXT = "schema.json"
NPY = b"\x93NUMPY\x01\x00"
HEADER = re.compile(
    r"\{'descr': '([<>|](?:[biuf][1248]|U\d{1,6}))', 'fortran_order': (True|False), "
    r"'shape': \(((?:\d{1,15}, ?)*(?:\d{1,15})?)\), \} *\n"
)


def pack(state: dict[str, Any]) -> bytes:
    """The content of a file with plain values and arrays, and nothing else."""
    arrays: list[np.ndarray] = []

    def instead(value: Any) -> Any:
        """What JSON can hold in place of an array, or of a number of NumPy's."""
        if isinstance(value, np.generic):
            return value.item()
        arrays.append(value)
        return {ARRAY: str(len(arrays) - 1)}

    values = json.dumps(state, default=instead)
    contents = json.dumps(_contents(values, len(arrays)))
    _check_text(contents)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, value in zip(_names(len(arrays)), arrays, strict=True):
            part = io.BytesIO()
            np.save(part, value, allow_pickle=False)
            _add_part(archive, name, part.getvalue())
        _add_part(archive, TEXT, contents.encode())
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
    parts = {part.filename: part for part in archive.infolist()}
    count = len(parts) - 1
    if set(parts) != {TEXT, *_names(count)} or len(archive.infolist()) > len(parts):
        raise zipfile.BadZipFile
    for part in parts.values():
        if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile
    values = _values(archive, parts[TEXT], count)
    headers = {str(i): _header(archive, parts[name]) for i, name in enumerate(_names(count))}
    named: list[Any] = []

    def hook(found: dict[str, Any]) -> Any:
        if ARRAY not in found:
            return found
        named.append(found[ARRAY])
        return headers[found[ARRAY]]

    state = _parsed(values, hook)
    if sorted(named) != sorted(headers):
        raise DamagedError("its arrays are not those that its values name")
    _checked(check, state)
    needed = COPIES * sum(each.count * each.dtype.itemsize for each in headers.values())
    if needed > available_memory():
        raise MemoryError(f"{needed / 2**30:.1f} GiB")
    state = _filled(state, archive)
    _checked(check, state)
    return state


def _checked(check: Callable[[Any], None], state: Any) -> None:
    try:
        check(state)
    except TableError:
        raise
    except ValueError as error:
        raise DamagedError(error) from None


# --- the text ---------------------------------------------------------------------------


def _contents(values: str, count: int) -> dict[str, Any]:
    """What skops would say of `{"values": values, "arrays": ...}`.

    Written here because importing skops takes as long as auditing a small table. Nothing in it
    depends on when or where it was written.
    """
    numbers = itertools.count(1)

    def node(kind: str, maker: str, module: str = "builtins", **more: Any) -> dict[str, Any]:
        named = {"__class__": kind, "__module__": module, "__loader__": maker}
        return {**named, **more, "__id__": next(numbers)}

    def mapping(content: dict[str, Any]) -> dict[str, Any]:
        types = node("list", "ListNode", content=[node("str", "TypeNode") for _ in content])
        return node("dict", "DictNode", content=content, key_types=types)

    contents = {
        "values": node("str", "JsonNode", content=json.dumps(values), is_json=True),
        "arrays": mapping(
            {
                str(i): node("ndarray", "NdArrayNode", "numpy", type="numpy", file=name)
                for i, name in enumerate(_names(count))
            }
        ),
    }
    layout = {"protocol": SKOPS_PROTOCOL, "_skops_version": "activehuber"}
    return mapping(contents) | layout


def _values(archive: zipfile.ZipFile, part: zipfile.ZipInfo, count: int) -> str:
    """The text of the values; all around it must be as `pack` writes it, types and all."""
    if part.file_size > MOST_TEXT:
        raise DamagedError("its text is far too long")
    contents = _parsed(b"".join(_pieces(archive, part)).decode("ascii"))
    values = _parsed(contents["content"]["values"]["content"])
    if contents != _contents(values, count):
        raise zipfile.BadZipFile
    return values


def _check_text(text: str) -> None:
    if len(text) > MOST_TEXT or not text.isascii():
        raise DamagedError("its text is far too long")
    if sum(map(text.count, ",[{")) > MOST_VALUES:
        raise DamagedError("it has far too many values")


def _parsed(text: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    _check_text(text)
    return json.loads(text, object_hook=hook, parse_int=_whole)


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS + 1:
        raise DamagedError("a whole number in it has too many digits")
    return int(digits)


def _pieces(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Iterator[bytes]:
    """The bytes of a part, as many as it claims to have at most."""
    with archive.open(part) as stream:
        while piece := stream.read(PIECE):
            yield piece


# --- arrays -----------------------------------------------------------------------------


def _names(count: int) -> list[str]:
    return [f"{number}.npy" for number in range(count)]


def _add_part(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    part = zipfile.ZipInfo(name)
    part.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(part, content, compresslevel=1)


def _header(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Header:
    """What an array says of itself; the size of its part must agree."""
    with archive.open(part) as stream:
        start = stream.read(len(NPY) + 2)
        size = int.from_bytes(start[len(NPY) :], "little")
        said = HEADER.fullmatch(stream.read(size).decode("latin-1"))
    if said is None or not start.startswith(NPY):
        raise DamagedError(f"{part.filename} is no array of numbers or words")
    dtype, shape = np.dtype(said[1]), tuple(int(side) for side in re.findall(r"\d+", said[3]))
    header = Header(part.filename, dtype, shape, "F" if said[2] == "True" else "C")
    if dtype.kind == "U" and dtype.itemsize > 4 * LONGEST_WORD:
        raise DamagedError(f"{part.filename} has words that are far too long")
    if len(start) + size + header.count * dtype.itemsize != part.file_size:
        raise DamagedError(f"{part.filename} has not the size that its shape {shape} asks for")
    return header


def _filled(value: Any, archive: zipfile.ZipFile) -> Any:
    """Values with their arrays read; they have been checked, so they are not deep."""
    if isinstance(value, dict):
        return {key: _filled(item, archive) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, archive) for item in value]
    return _array(value, archive) if isinstance(value, Header) else value


def _array(header: Header, archive: zipfile.ZipFile) -> np.ndarray:
    out = np.empty(header.count, dtype=header.dtype)
    raw, part = out.view(np.uint8), archive.getinfo(header.name)
    place = len(raw) - part.file_size  # below zero in the header
    for piece in _pieces(archive, part):
        wanted = np.frombuffer(piece, dtype=np.uint8)[max(0, -place) :]
        place += len(piece)
        raw[place - len(wanted) : place] = wanted
    if place < len(raw):
        raise DamagedError(f"{header.name} ends too early")
    kind, letters = header.dtype.kind, np.dtype("u4").newbyteorder(header.dtype.byteorder)
    if kind == "b" and np.any(raw > 1):
        raise DamagedError(f"{header.name} has flags that are neither true nor false")
    if kind == "U" and np.any(out.view(letters) > 0x10FFFF):
        raise DamagedError(f"{header.name} has letters that there are not")
    return out.reshape(header.shape, order="F" if header.order == "F" else "C")
