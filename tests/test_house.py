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


# Names with an underscore that other libraries have and no public one stands for.
NAMES_OF_OTHERS = {
    "_exit",  # of os: ends without waiting for threads
    "_meta",  # of Dask: what its chunks are made of
    "_repr_html_",  # of IPython: how notebooks show an object
    "_safe_indexing",  # of scikit-learn: rows of arrays, frames and lists
}


def is_own(function, cls, name):
    """Whether a name in a method stands for an object of its class: self, cls, a draft."""
    if name in ("self", "cls"):
        return True
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            made = ast.unparse(node.value)
            if made == "copy.copy(self)" or made.startswith(("cls(", "cls.", f"{cls}(")):
                return True
    return False


def foreign_names(tree):
    """Underscore names that are read of other objects, or imported."""
    own = set()
    for cls in ast.walk(tree):
        if isinstance(cls, ast.ClassDef):
            for node in ast.walk(cls):
                if isinstance(node, ast.FunctionDef):
                    own |= {
                        access
                        for access in ast.walk(node)
                        if isinstance(access, ast.Attribute)
                        and is_own(node, cls.name, ast.unparse(access.value))
                    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in own:
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            if private and ast.unparse(node.value) != "super()":
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            yield from (n for n in names if n.startswith("_") and not n.startswith("__"))


def test_no_module_reads_underscore_names_of_another_object():
    for _, path in modules():
        found = set(foreign_names(ast.parse(path.read_text())))
        assert found <= NAMES_OF_OTHERS, path


def functions():
    """Every function of the package: its module, the node, and the class it is a method of."""
    for name, path in modules():
        for owner in ast.walk(ast.parse(path.read_text())):
            body = getattr(owner, "body", [])
            for node in body if isinstance(body, list) else []:
                if isinstance(node, ast.FunctionDef):
                    yield name, node, owner


def test_classes_have_names_of_their_own():
    homes = {}
    for name, path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_modules_are_short():
    lengths = {name: len(path.read_text().splitlines()) for name, path in modules()}
    assert {name: n for name, n in lengths.items() if n > 700} == {}
    # What there is; it may fall, and is to fall to 24,000.
    assert sum(lengths.values()) <= 25_101


def test_functions_have_few_arguments():
    """Constructors, commands and what users call may have more than seven."""
    public = {*activehuber.__all__, "audit_parquet", "synthetic_camera"}
    long = set()
    for module, node, owner in functions():
        given = node.args
        names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        count = len(names) - (isinstance(owner, ast.ClassDef) and names[0] in ("self", "cls"))
        is_command = node.name.endswith("_command")
        if count > 7 and node.name not in {"__init__", *public} and not is_command:
            long.add(f"{module}.{node.name}")
    assert long == set()


def test_operators_say_what_they_can_do():
    """Nobody outside of their folders asks an operator or a reduction for its class."""
    homes, ends = (
        ("operators", "problem"),
        ("Gram", "Source", "Factor", "Reduction", "Expansion"),
    )
    asked = set()
    for name, path in modules():
        if name.split(".")[0] in homes:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                kinds = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                asked |= {(name, kind) for kind in kinds if kind.endswith(ends)}
    assert asked == set()
