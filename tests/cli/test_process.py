"""What the system does to a command: signals at any moment; streams closed, full, in ASCII."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil
import pytest

from activehuber.runtime.interrupts import STOPPED

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and /dev/full are POSIX")

LINE = f"activehuber: {STOPPED}\n"
MAIN = "from activehuber.__main__ import main; main()"
# Sends a signal to this process when a module is about to be imported.
SIGNAL_AT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Finder())
"""
# A command that prints, as all do when their files are written.
SPEAKING = """
from activehuber.cli.app import app

@app.command("speak")
def speak():
    print("na\\xefve \\xb7 " * 3000)
"""


def default_signals():
    """A test that runs in the background ignores Ctrl-C, and so would its children."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def child(code, *arguments, environment=None, before=default_signals, **streams):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        **streams,
        env={**os.environ, **path, **(environment or {})},
        preexec_fn=before,
        timeout=120,
    )


def has_ended(pid, seconds=10.0):
    """Whether a process is gone, or will be as soon as somebody looks after it."""
    with suppress(psutil.NoSuchProcess):
        process, until = psutil.Process(pid), time.monotonic() + seconds
        while time.monotonic() < until:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
            time.sleep(0.05)
        return False
    return True


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i % 7}\n" for i in range(40)))
    return path


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("activehuber.cli.app", signal.SIGINT),
        ("typer", signal.SIGTERM),
        ("numpy", signal.SIGINT),
        ("sklearn", signal.SIGTERM),
        ("pandas", signal.SIGINT),
    ],
)
def test_a_signal_during_imports_is_one_line(module, number, table, tmp_path):
    code = SIGNAL_AT.format(name=module, number=int(number)) + MAIN
    ended = child(code, "audit", table, "--target", "y", "-o", tmp_path / "out")
    assert (ended.returncode, ended.stderr.decode()) == (128 + number, LINE)
    assert ended.stdout == b"" and list(tmp_path.iterdir()) == [table]


def test_ctrl_c_before_anybody_listens_is_one_line():
    code = (
        SIGNAL_AT.format(name="activehuber.runtime.interrupts", number=int(signal.SIGINT))
        + MAIN
    )
    ended = child(code, "--help")
    assert (ended.returncode, ended.stderr) == (130, b"activehuber: stopped\n")


def test_a_signal_where_exceptions_get_lost():
    """Python prints an exception of a destructor with its traceback, and goes on."""
    code = (
        "import os, signal\nclass Dying:\n    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "from activehuber.cli.app import app\n"
        "app.command('die')(lambda: Dying() and None)\n"
    )
    ended = child(code + MAIN, "die")
    assert (ended.returncode, ended.stderr.decode()) == (130, LINE)


def test_a_signal_after_the_end_changes_nothing():
    code = "import atexit, os; atexit.register(os.kill, os.getpid(), 2)\n" + MAIN
    ended = child(code, "--version")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"activehuber ")


def test_a_signal_that_is_to_be_ignored_is():
    def ignoring():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does

    code = SIGNAL_AT.format(name="typer", number=int(signal.SIGHUP)) + MAIN
    assert child(code, "--version", before=ignoring).returncode == 0
    assert child(code, "--version").returncode == 128 + signal.SIGHUP


@pytest.mark.parametrize("there", [False, True])
def test_a_signal_while_files_are_written_leaves_none(there, tmp_path):
    """Nor a process of a pool, which would wait for ever."""
    out = tmp_path / "out"
    if there:
        out.mkdir()
    code = """
import os, sys
from pathlib import Path
from concurrent.futures import ProcessPoolExecutor
from activehuber.cli.app import app
from activehuber.runtime.files import write_file, write_files

def parts(number):
    yield b"half"
    os.kill(os.getpid(), number)
    yield b"the rest"

@app.command("write")
def write(folder: Path, number: int):
    pool = ProcessPoolExecutor(1)
    print(pool.submit(os.getpid).result(), flush=True)
    write_files(folder, {"a": b"whole", "b": parts(number)})

@app.command("write-one")
def write_one(folder: Path, number: int):
    write_file(folder / "c", parts(number))
"""
    for command in ("write", "write-one"):
        ended = child(code + MAIN, command, out, int(signal.SIGTERM))
        assert (ended.returncode, ended.stderr.decode()) == (143, LINE)
        assert [path for path in tmp_path.rglob("*") if path != out] == []
        if command == "write":
            assert has_ended(int(ended.stdout))


def test_ctrl_c_in_a_polite_block_unwinds_and_a_second_does_not(tmp_path):
    """What Dask has to close is closed; if that takes too long, a second signal ends it."""
    code = """
import os, signal, sys
from activehuber.cli.app import app
from activehuber.runtime import interrupts

@app.command("be")
def be(times: int):
    with interrupts.politely():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            print("closing", flush=True)
            if times == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            print("closed", flush=True)
"""
    for times, printed in ((1, b"closing\nclosed\n"), (2, b"closing\n")):
        ended = child(code + MAIN, "be", times)
        assert (ended.returncode, ended.stdout) == (143, printed)
        assert ended.stderr.decode().lstrip("\n") == LINE  # click ends the line of ^C


def test_a_missing_extra_is_one_line():
    code = "import sys; sys.modules['typer'] = None\n" + MAIN
    ended = child(code, "--help")
    assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1
    assert b"pip install 'activehuber[cli]'" in ended.stderr


def closing(*numbers):
    def close():
        default_signals()
        for number in numbers:
            os.close(number)

    return close


@pytest.mark.parametrize("numbers", [[1], [2], [0, 1, 2]])
@pytest.mark.parametrize(("command", "code"), [("speak", 0), ("--help", 0), ("--nope", 2)])
def test_closed_streams_are_no_error(numbers, command, code):
    ended = child(SPEAKING + MAIN, command, before=closing(*numbers))
    assert ended.returncode == code
    assert ended.stderr.count(b"\n") == (code == 2 and 2 not in numbers)


def test_no_file_gets_the_number_of_a_closed_stream():
    code = """
import sys
from activehuber.cli.app import app

@app.command("open")
def open_one():
    with open(sys.executable, "rb") as file:
        sys.exit(file.fileno())
"""
    ended = child(code + MAIN, "open", before=closing(0, 1, 2))
    assert ended.returncode > 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_full_streams():
    with open("/dev/full", "wb") as full:
        after_files = child(SPEAKING + MAIN, "speak", stdout=full)
        helped = child(MAIN, "--help", stdout=full)
        both = child(SPEAKING + MAIN, "speak", stdout=full, stderr=full)
        wrong = child(MAIN, "--nope", stderr=full)
    assert after_files.returncode == 0 and b"all is written, but" in after_files.stderr
    assert helped.returncode == 2 and b"stdout cannot be written: No space" in helped.stderr
    assert after_files.stderr.count(b"\n") == helped.stderr.count(b"\n") == 1
    assert (both.returncode, wrong.returncode) == (0, 2)


def test_a_reader_that_has_gone_is_no_error():
    for command in (["--help"], ["--version"], [], ["speak"]):
        read, write = os.pipe()
        os.close(read)
        try:
            ended = child(SPEAKING + MAIN, *command, stdout=write)
        finally:
            os.close(write)
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_stream_that_does_not_block_is_waited_for():
    read, write = os.pipe()
    os.set_blocking(write, False)
    waiting = subprocess.Popen(["sh", "-c", "sleep 0.5; cat"], stdin=read, stdout=-1)
    os.close(read)
    try:
        ended = child(SPEAKING + MAIN, "speak", stdout=write)
    finally:
        os.close(write)
    printed = waiting.communicate()[0].decode()
    assert (ended.returncode, ended.stderr) == (0, b"") and printed.count("naïve") == 3000


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}],
)
def test_ascii_terminals_get_what_they_can_show(environment, tmp_path):
    environment = {"PYTHONCOERCECLOCALE": "0", **environment}
    ended = child(SPEAKING + MAIN, "speak", environment=environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"na?ve ? na?ve")
    arguments = ["audit", "ä.csv", "--target", "日", "-o", tmp_path / "ö"]
    wrong = child(MAIN, *arguments, environment=environment)
    assert wrong.returncode == 2 and wrong.stderr.count(b"\n") == 1
    assert b"there is no such file" in wrong.stderr and b"bug" not in wrong.stderr


def test_names_that_are_no_text(table, tmp_path):
    """Bytes that are not UTF-8, as old file systems have them."""
    odd, out = tmp_path / os.fsdecode(b"t\xff.csv"), tmp_path / os.fsdecode(b"out\xff")
    try:
        table.rename(odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    ended = child(MAIN, "audit", odd, "--target", "y", "-o", out)
    assert (ended.returncode, ended.stderr) == (0, b"") and b"out?" in ended.stdout
    assert (out / "report.html").read_text("utf-8").endswith("</html>\n")
    other = tmp_path / os.fsdecode(b"\xfe.csv")
    ended = child(MAIN, "predict", out / "model.skops", odd, "-o", other)
    assert ended.returncode == 0 and other.exists()
    ended = child(MAIN, "predict", out / "model.skops", odd, "-o", other)
    assert ended.returncode == 2 and b"?.csv exists; use --force" in ended.stderr


def test_help_needs_no_numbers():
    code = (
        "import atexit, sys\nheavy = {'numpy', 'scipy', 'sklearn', 'pandas'}\n"
        "atexit.register(lambda: print(*heavy & set(sys.modules), file=sys.stderr))\n"
    )
    ended = child(code + MAIN, "audit", "--help")
    assert (ended.returncode, ended.stderr) == (0, b"\n")
