"""Three nodes under load while the worst happens to them, in short; `make chaos` plays all of it for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.scenarios import (
    SCENARIOS,
    Scenario,
    cut_from_followers,
    killed_leader,
    play,
    world_of,
    zombie,
)


def test_cuts_of_the_network_in_short(tmp_path: Path) -> None:
    with world_of(Scenario("short", cut_from_followers, needs_hosts=True), tmp_path, 1, print) as world:
        assert play([cut_from_followers], world, rounds=1).problems == []


def test_ends_of_processes_in_short(tmp_path: Path) -> None:
    with world_of(Scenario("short", killed_leader), tmp_path, 2, print) as world:
        assert play([killed_leader, zombie], world, rounds=1).problems == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_scenario_alone(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    with world_of(scenario, tmp_path, 3, print) as world:
        assert play([scenario.act], world, rounds=2).problems == []
