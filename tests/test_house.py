"""The house keeps its one direction of flow, and every public name its example."""

import ast
import doctest
from pathlib import Path

import pytest

import activehuber

SOURCE = Path(activehuber.__file__).parent

# A module imports only from those above it.
FLOW = [
    "words",
    "stopping",
    "streams",
    "_typing",
    "views",
    "huber",
    "linalg",
    "likelihood",
    "robust",
    "rows",
    "kernels",
    "basis",
    "landmark_choice",
    "graphs",
    "gram",
    "block_gram",
    "problem",
    "reduction",
    "newton",
    "recovery",
    "approximation",
    "path",
    "leave_one_out",
    "thresholds",
    "reinstatement",
    "widths",
    "refinement",
    "weights",
    "validation",
    "fitting",
    "intervals",
    "model_selection",
    "noise_rates",
    "families",
    "criterion",
    "judging",
    "selection",
    "tuning",
    "cluster",
    "intake",
    "regressor",
    "classifier",
    "search",
    "displays",
    "markup",
    "report",
    "tables",
    "schema",
    "archive",
    "features",
    "datasets",
    "audit",
    "persistence",
    "reproduce",
    "crowd",
    "cli",
    "__main__",
    "__init__",
]


def imports(path, package="activehuber"):
    """Names of the modules of a package that a file imports."""
    depth = package.count(".") + 1
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            name = node.module or ""
            whole = [f"{name}.{alias.name}" for alias in node.names]
            found = whole if name == package else [name]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        yield from (n.split(".")[depth] for n in found if n.startswith(f"{package}."))


# The same inside packages.
REPRODUCE = [
    "__init__",
    "protocol",
    "outcome",
    "data",
    "solver",
    "curve",
    "noisy_labels",
    "uci",
    "crowd",
    "pets",
    "command",
]
CROWD = [
    "__init__",
    "frames",
    "counts",
    "synthetic",
    "features",
    "lasting",
    "counter",
    "model",
    "page",
    "bench",
    "command",
]
AUDIT = [
    "inputs",
    "choice",
    "verdicts",
    "similar",
    "threshold_path",
    "reasons",
    "evidence",
    "summary",
    "outputs",
    "table",
    "parquet",
    "__init__",
]
PACKAGES = {"audit": AUDIT, "reproduce": REPRODUCE, "crowd": CROWD}


def test_every_module_is_in_the_flow():
    packages = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    assert sorted(FLOW) == sorted([*(path.stem for path in SOURCE.glob("*.py")), *packages])
    assert sorted(packages) == sorted(PACKAGES)
    for package, flow in PACKAGES.items():
        assert sorted(flow) == sorted(path.stem for path in (SOURCE / package).glob("*.py"))


def test_imports_go_down_only():
    for module in FLOW:
        above = FLOW[: FLOW.index(module)]
        package = SOURCE / module
        paths = package.glob("*.py") if package.is_dir() else [SOURCE / f"{module}.py"]
        for path in paths:
            assert not set(imports(path)) - {*above, module}, path
    for package, flow in PACKAGES.items():
        for place, module in enumerate(flow):
            source = SOURCE / package / f"{module}.py"
            found = set(imports(source, f"activehuber.{package}"))
            assert not found - set(flow[:place]), source


@pytest.mark.parametrize("name", [n for n in activehuber.__all__ if n != "__version__"])
def test_public_names_have_an_example(name):
    """That it runs is seen by pytest, which is told to run the examples of all modules."""
    found = doctest.DocTestFinder(recurse=False).find(getattr(activehuber, name), name)
    assert sum(len(test.examples) for test in found) >= 3
