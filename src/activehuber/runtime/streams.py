"""stdout and stderr that are there and take every text, whatever the system made of them.

Closed, full, without a reader or in ASCII: a command does its work and writes its files; what
could not be printed is told once, at the end.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any


class _Forgiving(io.RawIOBase):
    """Bytes to a stream until that fails; then to nowhere.

    Attributes
    ----------
    error : OSError or None
        The first failure; that the reader has gone is none.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream  # which closes its raw one when nobody has it any more
        self._raw = getattr(stream.buffer, "raw", stream.buffer)
        self._gone = False
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        while not self._gone:
            try:
                written = self._raw.write(data)
                if written is not None:
                    return written
                select.select([], [self._raw], [])  # it does not block, but is not ready
            except OSError as error:
                self._gone = True
                self.error = None if isinstance(error, BrokenPipeError) else error
        return size

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()


def guard() -> None:
    """Put streams that cannot fail in the place of stdin, stdout and stderr."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # it is closed: the next file would get its number
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:  # so Python has it where one is closed
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    sys.stdout = _guarded(sys.stdout, "replace")
    sys.stderr = _guarded(sys.stderr, "backslashreplace")


def _guarded(stream: Any, errors: str) -> io.TextIOWrapper:
    forgiving = io.BufferedWriter(_Forgiving(stream))
    buffering = stream.line_buffering, stream.write_through
    return io.TextIOWrapper(forgiving, stream.encoding, errors, None, *buffering)


def unprinted() -> str | None:
    """Why stdout of `guard` did not take all that was printed; None if it did."""
    print(end="", flush=True)
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    error = getattr(raw, "error", None)
    return None if error is None else error.strerror or str(error)
