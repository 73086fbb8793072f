"""Worker processes that try cases, and end with the case that hangs, crashes or eats memory."""

from __future__ import annotations

import faulthandler
import math
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil
from threadpoolctl import threadpool_limits

from tests.fuzzing.verdict import FAILED, SOURCE, Verdict

Trial = Callable[[int], Verdict]

# A try may use so many seconds of CPU. After so many times that of wall clock it may be at
# work still, since the machine may have other work, but not wait for anything.
SECONDS = 20
PATIENCE = 10
# Bytes that a try may add to the peak of its worker, and that a worker may have at all.
MOST_MEMORY = 1 << 29
MOST_ADDRESSES = 12 << 30
# Tries of one worker; then a fresh one, so that none inherits too much.
TRIES_OF_A_WORKER = 500

FORKING = multiprocessing.get_context("forkserver")


def run(
    trial: Trial, numbers: Iterable[int], *, jobs: int, seconds: int = SECONDS
) -> Iterator[tuple[int, Verdict]]:
    """Try every number, `jobs` at a time; verdicts come as they are ready.

    Parameters
    ----------
    trial : callable that can be pickled
        From a number to a verdict.
    numbers : iterable of int
    jobs : int
    seconds : int
        Of CPU for each.
    """
    FORKING.set_forkserver_preload(["tests.fuzzing.parts"])
    waiting = iter(numbers)
    with tempfile.TemporaryDirectory() as folder:
        workers = [_Worker(trial, Path(folder) / str(i), seconds) for i in range(jobs)]
        try:
            busy = [worker for worker in workers if worker.start(next(waiting, None))]
            while busy:
                wait([worker.mine for worker in busy], timeout=0.5)
                for worker in busy:
                    verdict = worker.verdict()
                    if verdict is not None:
                        yield worker.number, verdict
                        worker.start(next(waiting, None))
                busy = [worker for worker in busy if worker.number is not None]
        finally:
            for worker in workers:
                worker.end()


class _Worker:
    """A process that tries one number after the other, and its successors."""

    mine: Connection
    process: Any = None
    number: Any = None

    def __init__(self, trial: Trial, dump: Path, seconds: int) -> None:
        self.trial, self.dump, self.seconds = trial, dump, seconds
        self.tries = 0

    def start(self, number: int | None) -> bool:
        """Begin with a number; False if there is none."""
        self.number = number
        if number is None:
            return False
        if self.process is None or self.tries >= TRIES_OF_A_WORKER:
            self.end()
            self.mine, theirs = FORKING.Pipe()
            arguments = (theirs, self.trial, str(self.dump), self.seconds)
            self.process = FORKING.Process(target=_work, args=arguments, daemon=True)
            self.process.start()
            theirs.close()
            self.mine.recv()  # it is ready: what was imported until here is no part of a try
            self.tries = 0
        self.tries += 1
        self.began = time.monotonic()
        self.mine.send(number)
        return True

    def verdict(self) -> Verdict | None:
        """What came of the number; None if it is still being tried."""
        try:
            if self.mine.poll():
                return self.mine.recv()
        except (EOFError, ConnectionError):
            return self._post_mortem()
        if time.monotonic() - self.began > PATIENCE * self.seconds and self._is_idle():
            os.kill(self.process.pid, signal.SIGXCPU)  # leaves its traceback behind
        return None

    def _is_idle(self) -> bool:
        """Whether it waits for something; who works meets the limit of CPU in the end."""
        return psutil.Process(self.process.pid).status() != psutil.STATUS_RUNNING

    def _post_mortem(self) -> Verdict:
        self.process.join()
        code = -self.process.exitcode
        text = self.dump.read_text() if self.dump.exists() else ""
        self.process = None
        self.mine.close()
        what = "hangs" if code in (signal.SIGXCPU, signal.SIGKILL) else f"dies ({code})"
        return Verdict(FAILED, f"{what} at {_last_place(text)}", text)

    def end(self) -> None:
        """Stop the process, whatever it does."""
        if self.process is not None:
            self.mine.close()
            self.process.kill()
            self.process.join()
            self.process = None


def _last_place(dump: str) -> str:
    """The innermost line of this package in a dump of faulthandler."""
    for line in dump.splitlines():
        if SOURCE in line:
            return line.partition(SOURCE)[2].strip('/"').replace('", line ', ":")
    return "no line of activehuber"


def _work(theirs: Connection, trial: Trial, dump: str, seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or most > MOST_ADDRESSES:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, most))
    with open(dump, "w") as file, threadpool_limits(1):
        faulthandler.enable(file)
        # The default action follows: the end.
        faulthandler.register(signal.SIGXCPU, file, all_threads=False, chain=True)
        try:
            theirs.send("ready")
            while True:
                number = theirs.recv()
                file.seek(0)
                file.truncate()
                theirs.send(_within_limits(trial, number, seconds))
        except (EOFError, BrokenPipeError):
            return


def _within_limits(trial: Trial, number: int, seconds: int) -> Verdict:
    before = resource.getrusage(resource.RUSAGE_SELF)
    spent = math.ceil(before.ru_utime + before.ru_stime)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, most))
    verdict = trial(number)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before.ru_maxrss) * 1024
    if grown > MOST_MEMORY:
        return Verdict(FAILED, "takes more than 512 MiB", f"{grown / 2**20:.0f} MiB")
    return verdict
