"""Plants small wrong changes into rooms of the product, one at a time, and lists what no test of the room notices.

python -m tests.mutants                                  a sample of 40 of each room
python -m tests.mutants raft log --sample 100 --seed 7   another, larger one of two rooms
python -m tests.mutants raft --line raft/node.py:212     every change of one line; raft/node.py: of one file
python -m tests.mutants raft --unentered                 the statements that no test of the room enters, none is tried
python -m tests.mutants log --sample 10 --simulate 20    which of those that are noticed simulated worlds notice too
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from tests.mutants.changes import Mutant
from tests.mutants.rooms import ROOMS, ROOT
from tests.mutants.runs import Clean, RunError, Verdict, clean_run, verdict_of
from tests.mutants.samples import SEPARATOR, Place, of_line, sample, unentered
from tests.mutants.simulated import WORLDS_OF, report, text

SAMPLE = 40


def _clean(name: str) -> Clean:
    print(f"{name}: the tests without a mutant ...", flush=True)
    clean = clean_run(list(ROOMS[name].sources()), ROOMS[name].arguments())
    print(f"{name}: {len(clean.seconds)} tests, {sum(clean.seconds.values()):.0f} s", flush=True)
    return clean


def _list_unentered(name: str) -> None:
    found = unentered(ROOMS[name], _clean(name))
    for each in found:
        print(f"  {each.path.relative_to(ROOT)}:{each.line} {each.function}: {each.count} mutants")
    print(
        f"{name}: {len(found)} runs of statements with {sum(each.count for each in found)} mutants, no test enters them"
    )


def _tried(clean: Clean, place: Place, made: Mutant) -> Verdict:
    verdict = verdict_of(clean, place.module, place.path, made)
    print(f"{verdict.outcome:9}{text(place, made)}{SEPARATOR}{verdict.by}".removesuffix(SEPARATOR), flush=True)
    return verdict


def _report(name: str, tried: Sequence[tuple[Place, Mutant, Verdict]]) -> None:
    counts = Counter(verdict.outcome for _, _, verdict in tried)
    noticed = sum(verdict.noticed for _, _, verdict in tried)
    numbers = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{name}: {noticed} of {len(tried)} noticed ({numbers})")
    for place, made, verdict in tried:
        if not verdict.noticed:
            print(f"  {text(place, made)}" + ("  (no test enters it)" if verdict.outcome == "no test" else ""))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(ROOMS)}")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants of each room")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--line", help="every mutant of this FILE:LINE instead")
    parser.add_argument("--simulate", type=int, metavar="SEEDS", help="try what is noticed in simulated worlds too")
    parser.add_argument("--unentered", action="store_true", help="list where no test of the room comes, try nothing")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.rooms if name not in ROOMS]:
        parser.error(f"no such room: {', '.join(unknown)}")
    if asked.simulate and (bare := [name for name in asked.rooms if name not in WORLDS_OF]):
        parser.error(f"no simulated world lives on {', '.join(bare)}")
    for name in asked.rooms or (WORLDS_OF if asked.simulate else ROOMS):
        try:
            if asked.unentered:
                _list_unentered(name)
            else:
                _try_room(name, asked)
        except RunError as error:
            print(f"{name}: {error}")
            return 1
    return 0


def _try_room(name: str, asked: argparse.Namespace) -> None:
    drawn = list(of_line(name, asked.line)) if asked.line else sample(name, asked.sample, asked.seed)
    clean = _clean(name)
    tried = [(place, made, _tried(clean, place, made)) for place, made in drawn]
    _report(name, tried)
    if asked.simulate:
        report(name, asked.simulate, [(place, made) for place, made, verdict in tried if verdict.noticed])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
