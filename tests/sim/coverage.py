"""Lists the branches of the product that no simulated run takes, which faults do not reach.

python -m tests.sim.coverage --seeds 100                    a line for each module, and the summary of the document
python -m tests.sim.coverage --seeds 100 --show log/log.py  and the lines of these modules that were never reached

The product's modules are compiled with a mark in every branch: a function that begins, both ways of an `if` or `while`,
the body of a `for`, a `case`, an `except`. A mark is one store into a bytearray, so runs stay fast. It must be switched
on before the product is imported, which is why this module imports nothing of it above.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ROOT / "src" / "odradek"
DOCUMENT = ROOT / "docs" / "simulation-faults.md"
BEGIN, END = "<!-- coverage: begin -->", "<!-- coverage: end -->"
MARKS = "__branch_marks__"
SEEDS = 100
# Modules that no broker runs, that only a real machine has, and that are data.
LEFT_OUT = ("cli/", "testing/", "client/", "protocol/messages/", "common/real_io.py", "server/startup/process.py")


@dataclass
class Branches:
    """The branches of one module.

    Attributes:
        places: line and description of each; the index is its mark.
        marks: nonzero where a branch was taken.
    """

    room: str
    places: list[tuple[int, str]] = field(default_factory=list)
    marks: bytearray = field(default_factory=bytearray)

    @property
    def missed(self) -> list[tuple[int, str]]:
        return sorted(place for place, mark in zip(self.places, self.marks, strict=True) if not mark)


class Marker(ast.NodeTransformer):
    """Puts a mark at the beginning of every branch."""

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._function = ""

    def _mark(self, line: int, text: str) -> ast.stmt:
        number = len(self._branches.places)
        where = f"{self._function}: " if self._function else ""
        self._branches.places.append((line, where + text))
        (mark,) = ast.parse(f"{MARKS}[{number}] = 1").body
        for node in ast.walk(mark):
            if isinstance(node, ast.expr | ast.stmt):
                node.lineno = node.end_lineno = line
                node.col_offset = node.end_col_offset = 0
        return mark

    def _visit_function(self, node: Any) -> Any:
        before = self._function
        self._function = f"{before}.{node.name}" if before else node.name
        mark = self._mark(node.lineno, "called")
        node.body = [self.visit(each) for each in node.body]
        has_docstring = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        node.body.insert(1 if has_docstring else 0, mark)
        self._function = before
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._visit_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        if any("Protocol" in ast.unparse(base) for base in node.bases):
            return node  # declares what others do
        before = self._function
        self._function = f"{before}.{node.name}" if before else node.name
        self.generic_visit(node)
        self._function = before
        return node

    def visit_If(self, node: ast.If) -> Any:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return node
        yes, no = (self._mark(node.lineno, f"if {ast.unparse(node.test)}: {way}") for way in ("true", "false"))
        self.generic_visit(node)
        node.body.insert(0, yes)
        node.orelse.insert(0, no)
        return node

    def visit_While(self, node: ast.While) -> Any:
        yes = self._mark(node.lineno, f"while {ast.unparse(node.test)}: true")
        self.generic_visit(node)
        node.body.insert(0, yes)
        return node

    def visit_For(self, node: ast.For) -> Any:
        return self._visit_for(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> Any:
        return self._visit_for(node)

    def _visit_for(self, node: Any) -> Any:
        mark = self._mark(node.lineno, f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}")
        self.generic_visit(node)
        node.body.insert(0, mark)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        mark = self._mark(node.lineno, f"except {ast.unparse(node.type) if node.type else ''}")
        self.generic_visit(node)
        node.body.insert(0, mark)
        return node

    def visit_match_case(self, node: ast.match_case) -> Any:
        mark = self._mark(node.pattern.lineno, f"case {ast.unparse(node.pattern)}")
        self.generic_visit(node)
        node.body.insert(0, mark)
        return node


def marked(path: Path) -> tuple[ast.Module, Branches]:
    """A module's tree with marks, and the branches that they stand for."""
    branches = Branches(str(path.relative_to(PRODUCT)))
    tree = Marker(branches).visit(ast.parse(path.read_text()))
    branches.marks = bytearray(len(branches.places))
    return tree, branches


class MarkedLoader(importlib.machinery.SourceFileLoader):
    """Loads a module of the product with its marks."""

    def __init__(self, name: str, path: str, found: dict[str, Branches]) -> None:
        super().__init__(name, path)
        self._found = found

    def get_code(self, fullname: str) -> CodeType:
        tree, branches = marked(Path(self.path))
        self._found[branches.room] = branches
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        room = str(Path(self.path).relative_to(PRODUCT))
        vars(module)[MARKS] = self._found[room].marks
        exec(code, vars(module))


class MarkedFinder(importlib.abc.MetaPathFinder):
    """Finds modules of the product before the ordinary finders do."""

    def __init__(self) -> None:
        self.found: dict[str, Branches] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] != "odradek":
            return None
        base = PRODUCT.joinpath(*fullname.split(".")[1:])
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if not file.is_file() or str(file.relative_to(PRODUCT)).startswith(LEFT_OUT):
            return None
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=MarkedLoader(fullname, str(file), self.found),
            submodule_search_locations=[str(base)] if base.is_dir() else None,
        )


def all_branches(found: dict[str, Branches]) -> list[Branches]:
    """The branches of every module that counts, also of modules that no run imported."""
    rooms = sorted(str(path.relative_to(PRODUCT)) for path in PRODUCT.rglob("*.py"))
    counted = [room for room in rooms if not room.startswith(LEFT_OUT)]
    return [found[room] if room in found else marked(PRODUCT / room)[1] for room in counted]


def summary(modules: list[Branches]) -> str:
    """A table of rooms."""
    rooms: dict[str, list[int]] = {}
    for module in modules:
        counts = rooms.setdefault(module.room.split("/")[0], [0, 0])
        counts[0] += len(module.places)
        counts[1] += len(module.places) - len(module.missed)
    lines = ["| Room | Branches | Taken | Modules of which not a quarter is reached |", "| --- | ---: | ---: | --- |"]
    total, taken = 0, 0
    for room, (places, reached) in rooms.items():
        if not places:
            continue
        unreached = [module for module in modules if module.room.split("/")[0] == room and _is_unreached(module)]
        names = ", ".join(module.room.removeprefix(f"{room}/").removesuffix(".py") for module in unreached)
        lines.append(f"| {room} | {places} | {100 * reached // places} % | {names} |")
        total, taken = total + places, taken + reached
    lines.append(f"| all | {total} | {100 * taken // total} % | |")
    return "\n".join(lines)


def _is_unreached(module: Branches) -> bool:
    return len(module.places) > 0 and 4 * len(module.missed) > 3 * len(module.places)


def main() -> int:
    """Run seeds with marks; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.coverage", description="Branches that no seed takes.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--show", default=None, help="list what was missed in modules whose path contains this")
    arguments = parser.parse_args()
    assert not any(name.split(".")[0] == "odradek" for name in sys.modules), "the product was imported too early"
    finder = MarkedFinder()
    sys.meta_path.insert(0, finder)
    logging.disable(logging.CRITICAL)
    from tests.sim.__main__ import sweep
    from tests.sim.worlds import WORLDS

    for kind in WORLDS.values():
        sweep(kind, range(1, arguments.seeds + 1))
    modules = all_branches(finder.found)
    for module in modules:
        if module.places:
            taken = len(module.places) - len(module.missed)
            print(f"{100 * taken // len(module.places):4d} %  {taken:4d} of {len(module.places):4d}  {module.room}")
            if arguments.show is not None and arguments.show in module.room:
                for line, text in module.missed:
                    print(f"        {module.room}:{line}: {text}")
    text = summary(modules)
    print(text)
    write_table(f"Seeds 1 to {arguments.seeds} of each of the {len(WORLDS)} worlds:\n\n{text}")
    return 0


def write_table(text: str) -> None:
    """Replace what stands between the marks in the document."""
    document = DOCUMENT.read_text()
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
