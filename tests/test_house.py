"""The house keeps its one direction of flow, and every public name its example."""

import ast
import doctest
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import activehuber

SOURCE = Path(activehuber.__file__).parent

# A folder or module imports only from those above it.
FLOW = [
    "_version",
    "_typing",
    "views",
    "runtime",
    "loss",
    "numerics",
    "kernels",
    "graphs",
    "data",
    "operators",
    "problem",
    "solver",
    "labels",
    "fitting",
    "selection",
    "estimators",
    "inspection",
    "persistence",
    "report",
    "audit",
    "crowd",
    "cli",
    "__main__",
    "__init__",
]


def modules():
    """Dotted name of every module, without the package's, and its file."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield ".".join(path.relative_to(SOURCE).with_suffix("").parts), path


def imported(path):
    """Dotted names of what a file imports from the package, without the package's name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        yield from (
            n.removeprefix("activehuber.") for n in found if n.startswith("activehuber.")
        )


def test_every_folder_is_in_the_flow():
    assert sorted(FLOW) == sorted({name.split(".")[0] for name, _ in modules()})


def test_imports_go_down_between_folders():
    for name, path in modules():
        home = name.split(".")[0]
        if home == "__init__":
            continue
        allowed = {*FLOW[: FLOW.index(home) + 1], "__version__"}
        assert {other.split(".")[0] for other in imported(path)} <= allowed, path


def test_imports_inside_a_folder_make_no_circle():
    known = {name for name, _ in modules()}
    uses = {}
    for name, path in modules():
        found = {n for other in imported(path) for n in (other, other.rpartition(".")[0])}
        uses[name] = (found & known) - {name}
    list(TopologicalSorter(uses).static_order())  # raises if there is one


@pytest.mark.parametrize("name", [n for n in activehuber.__all__ if n != "__version__"])
def test_public_names_have_an_example(name):
    """That it runs is seen by pytest, which is told to run the examples of all modules."""
    found = doctest.DocTestFinder(recurse=False).find(getattr(activehuber, name), name)
    assert sum(len(test.examples) for test in found) >= 3
