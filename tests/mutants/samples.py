"""Chooses the changes of a room: drawn by a seed, or all of a line; a seed draws none that is known as equivalent."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.mutants.changes import Mutant, changes, mutant
from tests.mutants.rooms import ROOMS, ROOT, Room
from tests.mutants.runs import Clean

SEPARATOR = " | "
AT = " @ "
# Lines that are ambiguous without the line before them.
BARE = {"continue", "break", "return"}
EQUIVALENT = Path(__file__).parent / "equivalent.txt"


@dataclass(frozen=True, slots=True)
class Place:
    """One change of one module: its number, and where it is."""

    module: str
    path: Path
    number: int
    line: int

    def mutant(self) -> Mutant:
        return mutant(self.path.read_text(), self.number)

    def keys(self, made: Mutant) -> set[str]:
        """The names that a list may use for the change: with its function and text, and with its line, if ambiguous."""
        key = f"{self.path.relative_to(ROOT)}: {made.function}: {made.before} -> {made.after}".replace("\n", " ")
        lines = self.path.read_text().splitlines()
        line = lines[made.line - 1].strip()
        if line in BARE:
            line = f"{lines[made.line - 2].strip()} {line}"
        return {key, key + AT + line}


def places(room: Room, file: str = "") -> list[Place]:
    """Every change that can be made in the room, or in its files whose paths end so."""
    return [
        Place(module, path, number, change.line)
        for module, path in room.sources()
        if str(path).endswith(file)
        for number, change in enumerate(changes(ast.parse(path.read_text())))
    ]


def equivalents() -> set[str]:
    lines = EQUIVALENT.read_text().splitlines()
    return {line.rpartition(SEPARATOR)[0] for line in lines if line and not line.startswith("#")}


def sample(name: str, size: int, seed: int) -> list[tuple[Place, Mutant]]:
    """The changes that this seed draws, in the order of the sources; none that is known as equivalent."""
    every = places(ROOMS[name])
    Random(f"{name} {seed}").shuffle(every)
    known = equivalents()
    drawn: list[tuple[Place, Mutant]] = []
    for place in every:
        if len(drawn) == size:
            break
        made = place.mutant()
        if not place.keys(made) & known:
            drawn.append((place, made))
    return sorted(drawn, key=lambda each: (each[0].path, each[0].number))


def of_line(name: str, where: str) -> Iterator[tuple[Place, Mutant]]:
    """The changes of a line, or of a file where none is named; each is made when it is asked for."""
    file, _, line = where.partition(":")
    for place in places(ROOMS[name], file):
        if line in ("", str(place.line)):
            yield place, place.mutant()


@dataclass(frozen=True, slots=True)
class Unentered:
    """A run of statements that no test of its room enters, by its first change, and how many changes it has."""

    path: Path
    line: int
    function: str
    count: int


def unentered(room: Room, clean: Clean) -> list[Unentered]:
    """The blocks that no test enters, as a test is missing or the code is dead; without equivalent changes."""
    known = equivalents()
    found: dict[tuple[str, int], Unentered] = {}
    for module, path in room.sources():
        for number, change in enumerate(changes(ast.parse(path.read_text()))):
            if clean.tests_of(module, change.block):
                continue
            place = Place(module, path, number, change.line)
            if not place.keys(place.mutant()) & known:
                first = found.get((module, change.block), Unentered(path, change.line, change.function, 0))
                found[module, change.block] = replace(first, count=first.count + 1)
    return list(found.values())


def stale_equivalents(known: set[str]) -> set[str]:
    """The lines of the list that do not fit exactly one change of the product."""
    fits: Counter[str] = Counter()
    functions = {tuple(key.split(": ")[:2]) for key in known}
    for room in ROOMS.values():
        for module, path in room.sources():
            file = str(path.relative_to(ROOT))
            if any(file == each[0] for each in functions):
                for number, change in enumerate(changes(ast.parse(path.read_text()))):
                    if (file, change.function) in functions:
                        place = Place(module, path, number, change.line)
                        fits.update(place.keys(place.mutant()) & known)
    return {key for key in known if fits[key] != 1}
