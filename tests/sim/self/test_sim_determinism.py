"""A seed is one run: first in its process or after another seed, in another process, with other hashes of strings."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.common.buggify import buggify
from tests.sim import trace
from tests.sim.compacted import CompactedNode
from tests.sim.crowded import CrowdedNode
from tests.sim.failures import failures
from tests.sim.one_node import OneNode
from tests.sim.runs import run_seed
from tests.sim.trace import Trace, parted_s
from tests.sim.worlds import KINDS, WORLDS

ROOT = Path(__file__).resolve().parents[3]
# Two seeds of each world: one in which only processes die, and one in which machines lose power.
SEEDS = {
    "node": (2, 5),
    "cluster": (2, 5),
    "moving": (3, 5),
    "copying": (3, 5),
    "directories": (3, 5),
    "compacted": (3, 5),
    "transactions": (5, 6),
    "producers": (1, 2),
    "lasting": (1, 2),
    "keyed": (1, 4),
    "permissions": (1, 2),
    "quotas": (1, 2),
    "quorum": (4, 6),
    "linked": (3, 2),
    "hosts": (1, 2),  # only a host loses its power there
    "damaged": (1, 2),  # no machine loses power there
}
# The others are slow tests; nodes of a cluster do all that one alone does.
IN_SHORT = ("cluster",)
PROGRAM = """
import json, logging, sys
from tests.sim.runs import run_seed
from tests.sim.worlds import WORLDS

logging.disable(logging.CRITICAL)
found = {}
for world, seeds in json.loads(sys.argv[1]).items():
    reports = [run_seed(seed, kind=WORLDS[world]) for seed in seeds]
    found[world] = [[report.seed, report.trace, report.marks, report.operations] for report in reports]
print(json.dumps(found))
"""


@functools.cache
def runs(worlds: tuple[str, ...], *, backwards: bool, hash_seed: str) -> dict[str, list[Any]]:
    """(seed, trace, marks, operations) of the seeds of each world, all one after the other in a process of its own."""
    order = -1 if backwards else 1
    seeds = {world: SEEDS[world][::order] for world in worlds[::order]}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(seeds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "world", [world if world in IN_SHORT else pytest.param(world, marks=pytest.mark.slow) for world in WORLDS]
)
def test_a_seed_is_the_same_run_each_time_whatever_strings_hash_to(world: str) -> None:
    one, other = SEEDS[world]
    first: dict[int, Any] = {}
    # The worlds of the short form share their processes: a start takes as long as a run.
    together = IN_SHORT if world in IN_SHORT else (world,)
    forwards = runs(together, backwards=False, hash_seed="1")[world]
    for seed, *run in [*forwards, *runs(together, backwards=True, hash_seed="2")[world]]:
        known = first.setdefault(seed, run)
        parted = parted_s([tuple(mark) for mark in known[1]], [tuple(mark) for mark in run[1]])
        assert run == known, f"two runs of seed {seed} part after {parted} simulated s"
    assert first[one][0] != first[other][0]


def test_seeds_of_both_kinds_of_worlds_are_compared() -> None:
    for kind in KINDS:
        name = kind.world_name
        lose = [kind.draw(Random(seed ^ kind.salt), frozenset()).loses_power for seed in SEEDS[name]]
        assert sorted(lose) == [False, True], (name, lose)


def test_a_byte_on_a_disk_or_a_wire_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = run_seed(2, kind=OneNode)
    data = Trace.data
    for kind in (b"w", b"n"):
        left = [100]

        def one_bit(
            self: Trace, what: bytes, where: str, position: int, bytes_: bytes, kind: bytes = kind, left: Any = left
        ) -> None:
            left[0] -= what == kind and bool(bytes_)
            if left[0] == 0 and what == kind and bytes_:
                bytes_ = bytes([bytes_[0] ^ 1, *bytes_[1:]])
            data(self, what, where, position, bytes_)

        monkeypatch.setattr(trace.Trace, "data", one_bit)
        assert run_seed(2, kind=OneNode).trace != right.trace
    monkeypatch.setattr(trace.Trace, "data", data)
    assert run_seed(2, kind=OneNode).trace == right.trace


def test_the_first_difference_of_two_runs_is_reported() -> None:
    def marks(different_from_s: float) -> list[tuple[float, str]]:
        facts = Trace()
        for number in range(50):
            now_s = number / 10
            facts.step(now_s, "node-1" if now_s < different_from_s else "node-2")
        facts.record("the end")
        return facts.marks

    assert parted_s(marks(9.0), marks(9.0)) is None
    assert parted_s(marks(9.0), marks(2.5)) == 2.0
    assert parted_s(marks(9.0), marks(9.0)[:-1]) == 3.0


def test_brokers_in_other_threads_are_not_in_the_box() -> None:
    """A test may keep an embedded broker for a whole session, in a thread of the process in which seeds run."""
    seed = next(each for each in range(1, 100) if OneNode.draw(Random(each ^ OneNode.salt), frozenset()).buggify)
    alone = run_seed(seed, kind=OneNode)
    ended = threading.Event()

    async def pass_points() -> None:
        for number in itertools.count():
            if ended.is_set():
                return
            await buggify(f"elsewhere {number}")
            await asyncio.sleep(0.001)

    thread = threading.Thread(target=lambda: asyncio.run(pass_points()))
    thread.start()
    try:
        beside = run_seed(seed, kind=OneNode)
    finally:
        ended.set()
        thread.join()
    assert beside.trace == alone.trace


def test_a_failure_says_whether_the_run_is_reproducible() -> None:
    report = run_seed(SEEDS["node"][0], kind=WORLDS["node"])
    report.problems.append("made up")
    assert f"the same (trace {report.trace})" in failures([report])
    until_s = report.marks[3][0]
    report.trace, report.marks = "another", [*report.marks[:4], (report.marks[4][0], "another")]
    assert f"ANOTHER RUN, good; they part after {until_s} simulated s" in failures([report])


@pytest.mark.slow
def test_a_failure_in_a_world_that_no_sweep_has_is_run_again_too() -> None:
    class Nameless(CompactedNode):
        """A world of one test."""

    crowded, nameless = run_seed(1, kind=CrowdedNode), run_seed(1, kind=Nameless)
    for report in (crowded, nameless):
        report.problems.append("made up")
    said = failures([crowded, nameless])
    assert f"the same (trace {crowded.trace})" in said and f"the same (trace {nameless.trace})" in said
    assert "make sim WORLD=crowded-node SEED=1\n" in said
    assert f"run_seed(1, kind={Nameless.__qualname__}) of {__name__}\n" in said
