"""The tests of compaction find every bug that is planted."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from odradek.common.errors import OdradekError
from tests.sim.planted import Bug
from tests.support.models.compacted_log import CODECS, RETENTION_MS, CompactedLog
from tests.support.planted.compaction_bugs import AT_DEATH, IN_PEACE
from tests.unit.log.test_compaction import play
from tests.unit.log.test_compaction_crashes import ABORTING, crash_at

LOGS = 400
DEATH_SEEDS = (0, ABORTING, ABORTING + 21, 1, ABORTING + 1, ABORTING + 11)
MOST_CHANGES = 60
# The seed or the compacted that finds a bug first, if that is late. After a change of compaction it may be another one.
FOUND_BY_STORY = {"segment's end lost": 146}
FOUND_BY_DEATH = {
    "swap without fsync": (ABORTING, 4, True),
    "index without fsync": (ABORTING, 6, True),
    "log swapped before its indexes": (ABORTING + 1, 13, False),
    "old segments stay beside the new one": (0, 16, False),
    "old segments go before the new one counts": (0, 22, False),
}


def random_steps(random: Random) -> list[tuple[Any, ...]]:
    steps: list[tuple[Any, ...]] = []
    for _ in range(random.randint(5, 50)):
        pairs = [
            (random.choice([b"a", b"b", b"c"]), random.choice([None, b"1", b"2"])) for _ in range(random.randint(1, 4))
        ]
        kind = random.random()
        if kind < 0.3:
            steps.append(("append", pairs, random.choice(CODECS), random.choice([-1, 7])))
        elif kind < 0.45:
            steps.append(("transact", pairs, random.choice(CODECS), random.choice([8, 9])))
        elif kind < 0.55:
            steps.append(("end", random.random() < 0.5, random.choice([8, 9])))
        elif kind < 0.75:
            steps.append(("roll",))
        elif kind < 0.85:
            steps.append(("wait", random.choice([1, RETENTION_MS // 2, RETENTION_MS])))
        else:
            steps.append(("clean",))
    return steps


def clean_one_log(seed: int) -> None:
    random = Random(seed)
    compacted = CompactedLog(table_bytes=random.choice([300, 1 << 20]), segment_bytes=random.choice([2000, 1 << 20]))
    play(compacted, random_steps(random))
    for producer_id in (8, 9):
        compacted.end_transaction(producer_id, commit=True)
    compacted.clean_past_retention()
    # By now the retention of every kept tombstone is over.
    last = compacted.last_of_keys(compacted.log.cleaned_offset)
    compacted.check_gone([each.offset for each in last.values() if each.value is None])


def ids(bugs: tuple[Bug, ...]) -> list[str]:
    return [bug.name.replace(" ", "-") for bug in bugs]


def test_no_log_fails_without_a_bug() -> None:
    for seed in range(40):
        clean_one_log(seed)


@pytest.mark.parametrize("bug", IN_PEACE, ids=ids(IN_PEACE))
def test_random_logs_find_a_planted_bug(bug: Bug) -> None:
    with bug.planted():
        known = FOUND_BY_STORY.get(bug.name, 0)
        for seed in dict.fromkeys([known, *range(LOGS)]):
            try:
                clean_one_log(seed)
            except (AssertionError, OdradekError):
                return
    pytest.fail(f"{bug.name}: {LOGS} logs did not find it")


def finds(seed: int, change: int, power: bool) -> bool:
    """Whether a death before that change of the cleaning of that log finds a bug."""
    try:
        crash_at(seed, change, power=power)
    except (AssertionError, OdradekError, OSError):
        return True
    return False


@pytest.mark.parametrize("bug", AT_DEATH, ids=ids(AT_DEATH))
def test_deaths_find_a_planted_bug(bug: Bug) -> None:
    with bug.planted():
        if bug.name in FOUND_BY_DEATH and finds(*FOUND_BY_DEATH[bug.name]):
            return
        for seed in DEATH_SEEDS:
            for change, power in itertools.product(range(1, MOST_CHANGES), (False, True)):
                if finds(seed, change, power):
                    return
    pytest.fail(f"{bug.name}: no death found it")
