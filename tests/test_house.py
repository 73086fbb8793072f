"""The house keeps its one direction of flow, and every public name its example."""

import ast
import doctest
from pathlib import Path

import pytest

import activehuber

SOURCE = Path(activehuber.__file__).parent

# A module imports only from those above it.
FLOW = [
    "_typing",
    "views",
    "huber",
    "linalg",
    "kernels",
    "graphs",
    "gram",
    "problem",
    "reduction",
    "newton",
    "recovery",
    "path",
    "leave_one_out",
    "thresholds",
    "refinement",
    "weights",
    "validation",
    "fitting",
    "intervals",
    "model_selection",
    "noise_rates",
    "selection",
    "tuning",
    "regressor",
    "classifier",
    "search",
    "displays",
    "report",
    "tables",
    "features",
    "datasets",
    "audit",
    "persistence",
    "cli",
    "__init__",
]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("activehuber"):
            parts = node.module.split(".")
            yield from [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (
                a.name.split(".")[1] for a in node.names if a.name.startswith("activehuber.")
            )


def test_every_module_is_in_the_flow():
    assert sorted(FLOW) == sorted(path.stem for path in SOURCE.glob("*.py"))


@pytest.mark.parametrize("module", FLOW)
def test_imports_go_down_only(module):
    above = FLOW[: FLOW.index(module)]
    assert not set(imports(SOURCE / f"{module}.py")) - set(above)


@pytest.mark.parametrize("name", [n for n in activehuber.__all__ if n != "__version__"])
def test_public_names_have_a_running_example(name):
    found = doctest.DocTestFinder(recurse=False).find(getattr(activehuber, name), name)
    assert sum(len(test.examples) for test in found) >= 3
    runner = doctest.DocTestRunner()
    for test in found:
        assert runner.run(test).failed == 0
