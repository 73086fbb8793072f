"""Files that are whole or absent: written as drafts, put in their places in one step."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from activehuber.runtime.interrupts import cleaned_up
from activehuber.runtime.messages import TableError, first_line

# Characters of a path in a message.
LONGEST_PATH = 100


def check_outputs(folder: Path, names: Iterable[str], *, force: bool) -> None:
    """Raise, before any work, if the files could not be put there."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise TableError(f"{folder} is {_kind(folder)}; choose another folder with -o")
    for name in names:
        _check_replaceable(folder / name, "another -o", force=force)
    _check_can_be_made(folder)


def check_output_file(path: Path, *, force: bool) -> None:
    """Raise, before any work, if one file could not be put there."""
    _check_replaceable(path, "another name", force=force)
    _check_can_be_made(path.parent)


def _check_replaceable(path: Path, instead: str, *, force: bool) -> None:
    """Raise unless nothing is at the place, or a plain file that may be replaced."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return  # a parent that is no folder is said by `_check_can_be_made`
    except (OSError, ValueError) as error:
        raise TableError(f"{_named(path)} cannot be written: {_reason(error)}") from None
    if stat.S_ISDIR(mode):
        raise TableError(f"{path} is a directory; give the name of a file")
    if not stat.S_ISREG(mode):
        raise TableError(f"{path} is {_kind(path)}, which is never replaced; use {instead}")
    if not force:
        raise TableError(f"{path} exists; use --force to replace it or {instead}")


def _kind(path: Path) -> str:
    """What is at a place, in words; a link is one whatever it points to."""
    mode = path.lstat().st_mode
    kinds = {"-": "a file", "d": "a directory", "l": "a link", "p": "a pipe", "s": "a socket"}
    return kinds.get(stat.filemode(mode)[0], "a device")


def _named(path: Path) -> str:
    """A path for a message; the end of a long one is what tells it from others."""
    text = str(path)
    return text if len(text) <= LONGEST_PATH else f"…{text[-LONGEST_PATH:]}"


def _reason(error: Exception) -> str:
    """What the system says, without number and path."""
    return getattr(error, "strerror", None) or first_line(error)


def _check_can_be_made(folder: Path) -> None:
    """Raise unless a folder can be written to, or made where it is not there yet."""
    places = (folder, *folder.absolute().parents)
    there = next(place for place in places if os.path.lexists(place))
    if not os.path.isdir(there):
        words = f"{there} is {_kind(there)}, not a folder"
        raise TableError(f"{_named(folder)} cannot be written to: {words}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise TableError(f"{_named(folder)} cannot be written to; choose another folder")
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise TableError(f"{_named(folder)} cannot be made: {_reason(error)}") from None


def write_files(
    folder: Path, contents: Mapping[str, bytes | Iterable[bytes]], *, force: bool = False
) -> None:
    """Put files into a folder, each whole or not at all.

    They are written into a draft of it first. A folder that is not there yet appears with all
    of them at once; in one that is, each file is replaced in one step. A file given in parts
    is made while it is written, so that it need not be held.
    """
    check_outputs(folder, contents, force=force)
    there = folder.exists()
    # Inside a folder that is there: it may be a disk of its own, or all that we may write to.
    draft = _draft_in(folder if there else folder.parent)
    with _said_of(folder), cleaned_up(partial(shutil.rmtree, draft, ignore_errors=True)):
        draft.mkdir(parents=True)
        for name, content in contents.items():
            _write_synced(draft / name, content)
        if not there:
            try:
                draft.rename(folder)
                return
            except OSError:
                if not folder.is_dir():
                    raise
        for name in contents:
            os.replace(draft / name, folder / name)


def write_file(path: Path, content: bytes | Iterable[bytes], *, force: bool = True) -> None:
    """Put one file, or one made in parts, at its place in one step."""
    check_output_file(path, force=force)
    with drafted(path) as draft:
        _write_synced(draft, content)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """A place for a file in the making, with its ending; the block done, it is at `path`."""
    check_output_file(path, force=True)
    draft = _draft_in(path.parent, path.suffix)
    with _said_of(path), cleaned_up(partial(_remove, draft)):
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)


def _draft_in(folder: Path, ending: str = "") -> Path:
    """A name that nobody has, in the folder where what is made will be."""
    return folder / f".activehuber-{secrets.token_hex(8)}.tmp{ending}"


def _remove(path: Path) -> None:
    # There is none if it could not be made, or is at its place.
    with suppress(OSError):
        path.unlink()


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    """Errors of the system as one line."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{_named(path)} cannot be written: {_reason(error)}") from None


def _write_synced(path: Path, content: bytes | Iterable[bytes]) -> None:
    # A new file: not one that somebody made or linked to where the draft will be.
    with path.open("xb") as file:
        for part in [content] if isinstance(content, bytes) else content:
            file.write(part)
        file.flush()
        # Without this a power cut after the rename could leave an empty file.
        os.fsync(file.fileno())
