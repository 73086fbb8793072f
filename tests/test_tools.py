"""What make calls to run these tests elsewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest

HOUSE = Path(__file__).parent.parent


def tool(name):
    spec = importlib.util.spec_from_file_location(name, HOUSE / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_kernels_that_are_not_loaded_or_cannot_run_are_left_out():
    cores = tool("cores")
    assert cores.obstacle("Nonesuch").endswith("would be used")
    killed = cores.obstacle("Haswell", "import os; os.kill(os.getpid(), 4)")
    assert killed == "this processor cannot run it (SIGILL)"
    assert cores.obstacle("haswell", "print('Haswell')") is None
    with pytest.raises(SystemExit, match="Haswell: no product was possible"):
        cores.obstacle("Haswell", "1 / 0")


def test_the_tests_of_the_mathematics_are_there():
    numeric = tool("cores").NUMERIC
    assert all((HOUSE / "tests" / name).exists() for name in numeric)
    assert len(set(numeric)) == len(numeric)


def test_interpreters_are_found_by_version_on_the_path_and_in_pyenv(monkeypatch, tmp_path):
    pythons = tool("pythons")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    answers = {("versions", "--bare"): f"{own}.9\n2.7.1", ("prefix", f"{own}.9"): str(tmp_path)}
    said = pythons.said
    monkeypatch.setattr(pythons, "said", lambda *call: answers.get(call[1:], "") or said(*call))
    monkeypatch.setattr(pythons.shutil, "which", lambda name: None)
    assert pythons.find(own) == f"{tmp_path}/bin/python"
    assert pythons.find("3.0") is None
    # A name on the PATH is taken if what it runs is that version.
    monkeypatch.setattr(pythons.shutil, "which", lambda name: sys.executable)
    assert pythons.find(own) == sys.executable and pythons.find("2.7") is None
    assert said("no-such-command") == said(sys.executable, "-c", "1 / 0") == ""


@pytest.mark.skipif(not (HOUSE / ".git").exists(), reason="not a checkout of git")
def test_nobody_may_write_to_the_copy(tmp_path):
    tool("elsewhere").copy_read_only(tmp_path / "source")
    copied = [tmp_path / "source", *(tmp_path / "source").rglob("*")]
    assert (tmp_path / "source/.ci/run").is_file() and len(copied) > 100
    assert not any(path.stat().st_mode & 0o222 for path in copied)


def test_shuffled_tests_stay_with_their_file():
    items = [SimpleNamespace(path=k // 9, name=k) for k in range(90)]

    def order(seed):
        found = items.copy()
        config = SimpleNamespace(getoption=lambda _: seed)
        conftest.pytest_collection_modifyitems(config, found)
        return [item.name for item in found]

    assert order(None) == list(range(90)) == sorted(order("1"))
    assert order("1") == order("1") != order("2") and order("1") != order(None)
    files = [name // 9 for name in order("1")]
    assert all(files[k] == files[k - k % 9] for k in range(90)) and files != sorted(files)


@pytest.mark.slow
def test_a_mutant_that_every_test_notices_is_killed():
    """The mutated module is what the tests import, wherever they are."""
    command = [sys.executable, "tools/mutants.py", "--sample", "12", "loss.huber"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True)
    found = re.search(r"^loss\.huber: 12 mutants, (\d+) killed", done.stdout, re.M)
    assert found and int(found[1]) >= 6, done.stdout
