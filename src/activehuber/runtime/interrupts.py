"""Ctrl-C and kill: one line and the exit code of the signal, at whatever moment they come.

An exception would not do. Raised while a library is imported, in a callback or when Python
ends, it is shown with a traceback, turned into another error or lost. So the process cleans up
what it was told of, says one line and is gone.

Nothing heavy is imported here, so that a command can be stopped from its first moment on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

STOPPED = "stopped; no file was left half-written"
# Ctrl-C, kill, and the terminal that is closed; Windows has no such thing as the last.
SIGNALS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]

_listening: list[int] = []
_clean_ups: list[Callable[[], object]] = []
# Signals that came while an exception was asked for, and how often that was.
_heard: list[int] = []
_polite: list[None] = []


def listen() -> None:
    """Let signals end this process; those that it was started to ignore stay ignored."""
    _listening.append(os.getpid())
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)


def finish(code: int) -> None:
    """All is done and said: a signal that still comes ends the process with its own code."""
    for number in SIGNALS:
        if signal.getsignal(number) == _on_signal:
            signal.signal(number, lambda *_: os._exit(code))


@contextmanager
def cleaned_up(clean: Callable[[], object]) -> Iterator[None]:
    """Call a function when the block ends, also by a signal; it may be called twice."""
    _clean_ups.append(clean)
    try:
        yield
    finally:
        clean()
        _clean_ups.remove(clean)


@contextmanager
def politely() -> Iterator[None]:
    """The first signal is a KeyboardInterrupt in this block, for what closes by itself."""
    _polite.append(None)
    try:
        yield
    finally:
        _polite.pop()


def ignore_interrupts() -> None:
    """For processes that work for this one: a terminal sends them Ctrl-C, too.

    The one that they work for ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def exit_code() -> int:
    """That of the signal behind a KeyboardInterrupt."""
    return 128 + (_heard[0] if _heard else signal.SIGINT)


def _on_signal(number: int, frame: Any) -> None:
    if os.getpid() not in _listening:  # a fork, with nothing of its own to clean up or say
        os._exit(128 + number)
    if _polite and not _heard:
        _heard.append(number)
        raise KeyboardInterrupt
    leave(number)


def leave(number: int) -> NoReturn:
    """Clean up, say one line and end the process, without unwinding anything."""
    with suppress(Exception):
        # Processes of a pool would wait for ever for one that is gone.
        if "multiprocessing" in sys.modules:
            for child in sys.modules["multiprocessing"].active_children():
                child.terminate()
    for clean in reversed(_clean_ups):
        with suppress(Exception):
            clean()
    with suppress(OSError):  # nobody reads it
        os.write(2, f"activehuber: {STOPPED}\n".encode())
    os._exit(128 + number)
