"""Whether simulated worlds notice the mutants that the tests of a room kill.

A run is the same again up to the block that a mutant changes, so only runs that enter it are tried. One that no world
enters is not seen for want of a world; one that runs enter, and that none of them calls wrong, for want of a checker or
of more seeds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import Mutant
from tests.mutants.in_a_box import FOUND
from tests.mutants.marks import with_marks, write_code
from tests.mutants.rooms import ROOMS, ROOT
from tests.mutants.runs import PASSED, RunError, Verdict, folder, run_python
from tests.mutants.samples import SEPARATOR, Place

# The worlds that live on a room's modules, the quickest first; `commit` has none.
WORLDS_OF = {
    "record": ("transactions", "compacted", "node", "keyed", "cluster"),
    "log": ("transactions", "compacted", "node", "keyed", "producers", "lasting", "cluster", "damaged", "moving"),
    "replica": ("transactions", "node", "producers", "lasting", "cluster", "moving", "directories"),
    "raft": ("quorum", "cluster", "moving"),
    "controller": ("quorum", "cluster", "moving", "directories"),
    "coordinator": ("transactions", "node", "producers", "lasting", "cluster", "copying"),
}
# A change that no client can see, one a line, as in equivalent.txt.
UNSEEN = Path(__file__).with_name("unseen.txt")
# The processor seconds after which a run, which takes some seconds, counts as hanging.
HANG_S = 60
START_S = 60.0


@dataclass(frozen=True, slots=True)
class Boxes:
    """Runs of the worlds without a mutant.

    Attributes:
        seconds: of each run, "world seed", in the order in which they are tried.
        entered: the runs that enter each block, by module and number.
    """

    seconds: dict[str, float]
    entered: dict[tuple[str, int], set[str]]

    def runs_of(self, module: str, block: int) -> list[str]:
        """The runs that can notice a change in this block; every run depends on code that runs on import."""
        entered = self.entered.get((module, block), set())
        return [run for run in self.seconds if block == 0 or run in entered]


def boxes(room: str, seeds: int, worlds: Sequence[str] = ()) -> Boxes:
    """Run so many seeds of each world that lives on a room (or of these), with marks in the room's modules."""
    runs = [f"{world} {seed}" for seed in range(1, seeds + 1) for world in worlds or WORLDS_OF[room]]
    with folder() as where:
        for module, path in ROOMS[room].sources():
            write_code(where, module, path, with_marks(path.read_text()))
        notes = where / "notes.json"
        code, said = _run(runs, where, None, {"MUTANT_NOTES": str(notes)})
        if code != PASSED:
            raise RunError(f"without a mutant, the worlds end with {code}:\n{said[-3000:]}")
        noted = json.loads(notes.read_text())
    entered: dict[tuple[str, int], set[str]] = {}
    for note in noted:
        for module, numbers in note["blocks"].items():
            for number in numbers:
                entered.setdefault((module, number), set()).add(note["run"])
    return Boxes({note["run"]: note["seconds"] for note in noted}, entered)


def verdict_of_worlds(clean: Boxes, place: Place, mutant: Mutant) -> Verdict:
    """Run the worlds that enter the mutant's block until one finds something wrong."""
    runs = clean.runs_of(place.module, mutant.block)
    if not runs:
        return Verdict("no world")
    with folder() as where:
        write_code(where, place.module, place.path, mutant.tree)
        patience = START_S + 20 * sum(clean.seconds[run] for run in runs)
        code, said = _run(runs, where, patience, {})
    if code is None:
        return Verdict("timeout", f"after {patience:.0f} s")
    if code == PASSED:
        return Verdict("survived", f"{len(runs)} runs")
    return Verdict("killed", (said.strip().splitlines() or [""])[-1] if code != FOUND else said.strip())


def _run(runs: Sequence[str], where: Path, patience: float | None, more: dict[str, str]) -> tuple[int | None, str]:
    settings = {"MUTANT_CODE": str(where), "MUTANT_SECONDS": str(HANG_S), **more}
    return run_python(["-m", "tests.mutants.in_a_box"], settings, patience, ROOT, "\n".join(runs))


def unseen() -> set[str]:
    """Changes that no client can see, though a test of its room does."""
    lines = UNSEEN.read_text().splitlines()
    return {line.rpartition(SEPARATOR)[0] for line in lines if line and not line.startswith("#")}


def text(place: Place, made: Mutant) -> str:
    """One line for a mutant."""
    change = f"{made.before} -> {made.after}".replace("\n", " ")
    return f"{place.path.relative_to(ROOT)}:{made.line} {made.function}: {change}"


def report(room: str, seeds: int, killed: Sequence[tuple[Place, Mutant]]) -> None:
    """Try every mutant that the room's tests killed against so many seeds of each world, and print what came of it."""
    known = unseen()
    seen = [(place, made) for place, made in killed if not place.keys(made) & known]
    print(f"{room}: {seeds} seeds of {', '.join(WORLDS_OF[room])} without a mutant ...", flush=True)
    clean = boxes(room, seeds)
    print(f"{room}: {len(clean.seconds)} runs, {sum(clean.seconds.values()):.0f} s", flush=True)
    counts: Counter[str] = Counter()
    for place, made in seen:
        verdict = verdict_of_worlds(clean, place, made)
        counts["noticed" if verdict.noticed else verdict.outcome] += 1
        print(f"{verdict.outcome:9}{text(place, made)}{SEPARATOR}{verdict.by}".removesuffix(SEPARATOR), flush=True)
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{room}: the worlds notice {counts['noticed']} of {len(seen)} that its tests kill ({numbers})", flush=True)
