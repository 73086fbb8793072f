"""What a benchmark prints is kept with all that it takes to print it again."""

import importlib
import inspect

import pytest

from benchmarks import record


def test_what_is_printed_is_kept_with_its_command_commit_and_versions(tmp_path, capfd):
    assert record.main(["semi_supervised", "--help"], tmp_path) == 0
    kept = (tmp_path / "semi_supervised.md").read_text()
    assert kept.startswith(
        "# `python -m benchmarks.semi_supervised --help`\n\nDo unlabelled rows"
    )
    for fact in ("date", "commit", "wall time", "machine", "versions: Python"):
        assert f"\n- {fact}" in kept
    assert "pandas" in kept
    printed = kept.split("```")[1].strip()
    assert "--first" in printed and printed in capfd.readouterr().out


def test_a_run_that_fails_is_not_kept(tmp_path, capfd):
    assert record.main(["semi_supervised", "--nonsense"], tmp_path) != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["record", "labels"]])
def test_other_names_are_refused_with_those_that_there_are(arguments, tmp_path, capsys):
    assert record.main(arguments, tmp_path) == 2
    assert (
        "there are audit, classics, coverage, labels, path, peers, sc"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", record.names())
def test_seeds_are_in_the_protocol_or_printed(name):
    module = importlib.import_module(f"benchmarks.{name}")
    printing = [line for line in inspect.getsource(module).splitlines() if 'f"' in line]
    assert "seed" in module.__doc__ or any("seed" in line for line in printing)
