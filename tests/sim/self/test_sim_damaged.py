"""The world whose disks change what was written: seeds that hold, and bugs in how damage is repaired."""

from __future__ import annotations

from typing import ClassVar

import pytest

from odradek.log.log import Log
from odradek.log.scrub import SegmentCheck
from odradek.log.segment import Segment
from odradek.server.background.scrubbing import Scrubbing
from tests.sim.bugs import problem_of
from tests.sim.damaged import DamagedCluster
from tests.sim.failures import failure
from tests.sim.planted_damaged import DAMAGED
from tests.sim.runs import run_seed

SEEDS = 1
MORE_SEEDS = 30
IN_SHORT = "what was here before is not verified"
BY_NAME = {bug.name: bug for bug in DAMAGED}


def hold(seed: int) -> int:
    """Run a seed, after which all damaged batches must be repaired; return how many it damaged."""
    report = run_seed(seed, kind=DamagedCluster)
    assert not report.failed, failure(report)
    return report.faults.get("damaged batch", 0)


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_damaged_batches_are_never_served_and_are_repaired(seed: int) -> None:
    assert hold(seed) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS + 1, MORE_SEEDS + 1))
def test_more_seeds_repair_their_damage(seed: int) -> None:
    hold(seed)


def test_every_bug_has_its_line() -> None:
    for bug in DAMAGED:
        with bug.planted():
            pass


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == IN_SHORT else [pytest.mark.slow]) for name in BY_NAME]
)
def test_a_planted_bug_is_caught_by_the_first_seed(name: str) -> None:
    with BY_NAME[name].planted():
        assert problem_of(1, DamagedCluster), BY_NAME[name].meaning


class Scrubbed(DamagedCluster):
    """The same with a scrub that is always at work."""

    settings: ClassVar[dict[str, str]] = {
        "odradek.log.scrub.enable": "true",
        "odradek.log.scrub.interval.ms": "300",
        "odradek.log.scrub.bytes.per.second": "1000000",
    }


def test_a_scrub_finds_what_disks_change_and_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    original = Scrubbing._repaired

    async def watched(self: Scrubbing, log: Log, segment: Segment, position: int, offset: int) -> SegmentCheck | None:
        check = await original(self, log, segment, position, offset)
        found.append(check is not None)
        return check

    monkeypatch.setattr(Scrubbing, "_repaired", watched)
    report = run_seed(1, kind=Scrubbed)
    assert not report.failed, failure(report)
    assert any(found), "some of it is repaired before anybody reads it"
