"""Break the code in one place at a time and see whether the tests of its module notice.

python tools/mutants.py                     every module of tools/mutants.toml
python tools/mutants.py solver.newton solver.path      some of them
python tools/mutants.py --sample 50         so many mutants of each, at random

A mutant differs from a module in one constant, comparison, operator or check. It is *killed* if
a test fails or runs for far too long; what nobody notices *survives*. Survivors that are known
stand in tools/mutants.toml with a word why, and count as survivors all the same.

Tools that do this exist; mutmut 3 leaves out constants of modules and properties, which hold
much of what is tested here, and cosmic-ray starts Python anew for each mutant. Here heavy
packages are imported once and pytest is started once for each module; a process is forked for
each mutant. It takes the mutated module in place of the file, and nothing is written.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.machinery
import importlib.util
import math
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "activehuber"
# The file descriptor on which a server answers.
ANSWER = 199
# A run may take so many times the processor time of the code as it is, and so many seconds
# more; where it only waits, so many times as long by the clock.
PATIENCE, GRACE, CLOCK = 3.0, 5.0, 10.0
# Characters shown on either side of what differs.
AROUND = 40

COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
EXTREMES = {"min": "max", "minimum": "maximum", "argmin": "argmax", "nanmin": "nanmax"}
EXTREMES |= {value: key for key, value in EXTREMES.items()}
# Type annotations do nothing.
INERT = {"annotation", "returns"}


@dataclass
class Mutant:
    """Another value for one field, or one item of a list, of a node."""

    module: str
    where: str
    line: int
    owner: ast.AST
    field: str
    index: int | None
    new: Any
    text: str = ""

    def swap(self) -> None:
        """Put the new value in; again to take it out."""
        old = getattr(self.owner, self.field)
        if self.index is None:
            setattr(self.owner, self.field, self.new)
            self.new = old
        else:
            old[self.index], self.new = self.new, old[self.index]

    def describe(self) -> None:
        """Set `text` to what is seen of it in the source, "before → after"."""
        before = self._shown()
        self.swap()
        self.text = " → ".join(_differing(before, self._shown()))
        self.swap()

    def _shown(self) -> str:
        owner = self.owner
        if isinstance(owner, (ast.If, ast.While)) and self.field == "test":
            return f"{type(owner).__name__.lower()} {ast.unparse(owner.test)}"
        if self.field == "body" and self.index is not None:
            return ast.unparse(getattr(owner, self.field)[self.index])
        if isinstance(owner, (ast.arguments, ast.For, ast.comprehension)):
            return ast.unparse(getattr(owner, self.field)[self.index or 0])
        return ast.unparse(owner)


def _differing(before: str, after: str) -> tuple[str, str]:
    """Both with what they have in common cut to a few characters around what differs."""
    shorter = min(len(before), len(after))
    start = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    room = shorter - start
    end = next((i for i in range(room) if before[-1 - i] != after[-1 - i]), room)
    first = max(0, start - AROUND)

    def cut(text: str) -> str:
        last = min(len(text), len(text) - end + AROUND)
        middle = " ".join(text[first:last].split())
        return ("…" if first else "") + middle + ("…" if last < len(text) else "")

    return cut(before), cut(after)


def mutants(module: str, tree: ast.Module) -> list[Mutant]:
    """All mutants of a module, in the order of its source."""
    found = []
    for where, owner, field, index, new in _changes(tree, ""):
        node = getattr(owner, field)
        node = node if index is None else node[index]
        line = int(getattr(node, "lineno", getattr(owner, "lineno", 0)))
        mutant = Mutant(module, where, line, owner, field, index, new)
        mutant.describe()
        found.append(mutant)
    return sorted(found, key=lambda mutant: mutant.line)


Change = tuple[str, ast.AST, str, int | None, Any]


def _changes(owner: ast.AST, where: str) -> Iterator[Change]:
    """Where, owner, field, index and new value of each change below a node."""
    if isinstance(owner, (ast.FunctionDef, ast.ClassDef)):
        where = f"{where}.{owner.name}".lstrip(".")
    yield from ((where, owner, *change) for change in _own_changes(owner))
    for field, value in ast.iter_fields(owner):
        if field in INERT or isinstance(owner, (ast.JoinedStr, ast.Assert)):
            continue
        items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in items:
            if isinstance(child, ast.AST):
                yield from (
                    (where, owner, field, index, new) for new in _replacements(child, owner)
                )
                yield from _changes(child, where)


def _own_changes(node: ast.AST) -> Iterator[tuple[str, int | None, Any]]:
    """Field, index and new value of what is changed inside a node."""
    if isinstance(node, ast.Compare):
        for index, kind in enumerate(node.ops):
            yield "ops", index, COMPARISONS[type(kind)]()
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        yield "op", None, OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        yield "op", None, ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Name) and node.id in EXTREMES:
        yield "id", None, EXTREMES[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in EXTREMES:
        yield "attr", None, EXTREMES[node.attr]
    elif isinstance(node, (ast.If, ast.IfExp)):
        yield "test", None, ast.Constant(True)
        yield "test", None, ast.Constant(False)
    elif isinstance(node, ast.While):
        yield "test", None, ast.Constant(False)
    elif isinstance(node, ast.comprehension):
        for index in range(len(node.ifs)):
            yield "ifs", index, ast.Constant(True)


def _replacements(node: ast.AST, owner: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of a node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        if not isinstance(node.value, bool):
            yield ast.Constant(_moved(node.value))
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield node.operand
    elif isinstance(node, ast.Raise):
        # The only statement of an `if` is removed by the `if` that is never true.
        if not (isinstance(owner, ast.If) and len(owner.body) == 1 and not owner.orelse):
            yield ast.Pass()


def _moved(value: float) -> float:
    """Another number near by: a tenth more, ten times a tolerance, one more of a few."""
    if isinstance(value, int):
        return value + 1 if value < 10 else 2 * value
    if value == 0.0:
        return 1.0
    return float(f"{value * (1.1 if value > 1e-3 else 10.0):.12g}")


# --- running ----------------------------------------------------------------------------


class _Loader(importlib.machinery.SourceFileLoader):
    """Makes a module from a tree in place of its file."""

    tree: ast.Module

    def get_code(self, fullname: str) -> Any:
        return compile(ast.fix_missing_locations(self.tree), self.path, "exec")


def file_of(module: str) -> Path:
    """Where a module is, such as solver.newton."""
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py")


class _Finder:
    def __init__(self, module: str, tree: ast.Module) -> None:
        self.name, self.path = f"activehuber.{module}", file_of(module)
        self.tree = tree

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        loader = _Loader(name, str(self.path))
        loader.tree = self.tree
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class _Server:
    """A plugin of pytest that forks a session for each mutant just before tests are collected.

    Sessions go on as if nothing had been. The server itself ends when all have ended, after it
    has written the numbers of the survivors.
    """

    def __init__(self, finder: _Finder, chosen: Sequence[Mutant], jobs: int) -> None:
        self.finder, self.chosen, self.jobs = finder, chosen, jobs
        self.running: dict[int, tuple[int, float]] = {}
        self.seconds = 0

    def pytest_collection(self, session: Any) -> None:
        self._import_heavy(session.config.args)
        # First the module as it is, by the same way: whatever fails later is the mutant's.
        process = self._fork(None)
        if not process:
            return
        _, status, used = os.wait4(process, 0)
        if status != 0:
            os._exit(1)
        self.seconds = math.ceil(PATIENCE * (used.ru_utime + used.ru_stime) + GRACE)
        for number, mutant in enumerate(self.chosen):
            self._wait(self.jobs - 1)
            process = self._fork(mutant)
            if not process:
                return
            self.running[process] = number, time.monotonic() + CLOCK * self.seconds
        self._wait(0)
        os._exit(0)

    def _fork(self, mutant: Mutant | None) -> int:
        """Fork a session; 0 in the session itself."""
        process = os.fork()
        if not process:
            os.setsid()
            self.running = {}
            sys.meta_path.insert(0, self.finder)
            if mutant is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (self.seconds, self.seconds))
                mutant.swap()
        return process

    def pytest_keyboard_interrupt(self) -> None:
        self._end(self.running)

    @staticmethod
    def _import_heavy(files: Sequence[str]) -> None:
        """Import what the tests import, and forget what is of the house."""
        for file in files:
            importlib.import_module(".".join(Path(file).with_suffix("").parts))
        for name in list(sys.modules):
            is_test = name.startswith("tests.") and name != "tests.conftest"
            if name.split(".")[0] == "activehuber" or is_test:
                del sys.modules[name]

    def _wait(self, left: int) -> None:
        """Wait until no more sessions than that are left."""
        while len(self.running) > left:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process:
                number, _ = self.running.pop(process)
                if status == 0:
                    os.write(ANSWER, f"{number}\n".encode())
                continue
            late = [p for p, (_, end) in self.running.items() if time.monotonic() > end]
            self._end(late)
            time.sleep(0.01)

    @staticmethod
    def _end(processes: Iterable[int]) -> None:
        """End sessions and what they have started."""
        for process in processes:
            os.killpg(process, signal.SIGKILL)


def survivors(
    finder: _Finder, chosen: Sequence[Mutant], tests: Sequence[str], jobs: int
) -> Iterator[Mutant]:
    """Those mutants that the tests do not notice, as they are found."""
    read, write = os.pipe()
    server = os.fork()
    if not server:
        os.dup2(write, ANSWER)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        import pytest

        options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
        os._exit(int(pytest.main([*options, *tests], [_Server(finder, chosen, jobs)])))
    os.close(write)
    with os.fdopen(read) as pipe:
        yield from (chosen[int(line)] for line in pipe)
    if os.waitpid(server, 0)[1] != 0:
        raise SystemExit(f"{' '.join(tests)}: they fail on the code as it is; mend that first")


# --- the report -------------------------------------------------------------------------


def _known(entries: Sequence[dict[str, str]]) -> dict[tuple[str, str, str], str]:
    return {(e["module"], e["where"], e["mutant"]): e["why"] for e in entries}


def _told(mutant: Mutant, known: dict[tuple[str, str, str], str]) -> str:
    why = known.get((mutant.module, mutant.where, mutant.text), "NEW")
    return f"  {mutant.module}.py:{mutant.line}  {mutant.where}  {mutant.text}    [{why}]"


def _tell_of_those_gone(
    module: str, every: Sequence[Mutant], known: dict[tuple[str, str, str], str]
) -> None:
    made = {(mutant.where, mutant.text) for mutant in every}
    for name, where, text in known:
        if name == module and (where, text) not in made:
            print(f"  tools/mutants.toml knows a mutant that is none: {where}  {text}")


def _options(modules: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="module", help=", ".join(modules))
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--sample", type=int, help="mutants of each module, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--where", default="", help="only mutants of functions named so")
    parser.add_argument("--list", action="store_true", help="show the mutants, run nothing")
    options = parser.parse_args()
    strange = sorted(set(options.modules) - set(modules))
    if strange:
        parser.error(f"no module {strange[0]!r} in tools/mutants.toml")
    return options


def main() -> None:
    """Make mutants, run tests, print the share that was killed and what survived."""
    settings = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text(encoding="utf-8"))
    tests, known = settings["tests"], _known(settings.get("survivor", []))
    options = _options(list(tests))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    sys.path[:0] = [str(SOURCE.parent), str(ROOT)]
    modules = options.modules or list(tests)
    made = killed = 0
    for module in modules:
        tree = ast.parse(file_of(module).read_text(encoding="utf-8"))
        every = mutants(module, tree)
        _tell_of_those_gone(module, every, known)
        chosen = [m for m in every if options.where in m.where]
        if options.sample is not None and options.sample < len(chosen):
            chosen = random.Random(options.seed).sample(chosen, options.sample)
        alive: Iterable[Mutant] = chosen
        if not options.list:
            alive = survivors(_Finder(module, tree), chosen, tests[module], options.jobs)
        left = 0
        for mutant in alive:
            left += 1
            print(_told(mutant, known), flush=True)
        made, killed = made + len(chosen), killed + len(chosen) - left
        print(f"{module}: {_share(len(chosen), len(chosen) - left)}", flush=True)
    print(f"all: {_share(made, killed)}")


def _share(made: int, killed: int) -> str:
    return f"{made} mutants, {killed} killed, {killed / max(1, made):.1%}"


if __name__ == "__main__":
    main()
