"""Replica placement: racks, spread, fenced brokers."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from odradek.common.errors import ApiError
from odradek.common.steps import all_steps
from odradek.controller.placement import UsableBroker, place_replicas


def placed_by(usable: list[UsableBroker], count: int, factor: int, source: random.Random) -> list[tuple[int, ...]]:
    return all_steps(place_replicas(usable, count, factor, source))


def brokers(racks: str, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    """One broker per letter, the letter its rack."""
    return [UsableBroker(number, rack, number in fenced) for number, rack in enumerate(racks)]


@pytest.mark.parametrize("racks", ["a", "aaa", "abc", "aabb", "aaabbb", "aaaabbcc", "abababab"])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_copies_are_spread_over_racks_and_leaders_over_brokers(racks: str, factor: int) -> None:
    if factor > len(racks):
        pytest.skip("fewer brokers than copies")
    for seed in range(5):
        placed = placed_by(brokers(racks), 240, factor, random.Random(seed))
        assert all(len(set(replicas)) == factor for replicas in placed)
        for replicas in placed:
            assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks)))
        by_rack = Counter(racks[replicas[0]] for replicas in placed)
        assert max(by_rack.values()) - min(by_rack.values()) <= 1
        for rack in set(racks):
            leaders = Counter(replicas[0] for replicas in placed if racks[replicas[0]] == rack)
            assert len(leaders) == racks.count(rack)
            assert max(leaders.values()) - min(leaders.values()) <= 1


def test_every_broker_of_a_rack_carries_its_share() -> None:
    placed = placed_by(brokers("aaabbb"), 300, 2, random.Random(3))
    load = Counter(broker for replicas in placed for broker in replicas)
    assert max(load.values()) - min(load.values()) <= 2


def test_fenced_brokers_never_lead_and_come_last() -> None:
    placed = placed_by(brokers("aaaa", fenced=(1, 2)), 50, 2, random.Random(1))
    assert all(set(replicas) == {0, 3} for replicas in placed)
    placed = placed_by(brokers("aaaa", fenced=(1, 2)), 50, 3, random.Random(1))
    assert all(replicas[0] in (0, 3) and replicas[2] in (1, 2) for replicas in placed)


def test_a_rack_whose_brokers_are_all_fenced_still_gets_a_copy() -> None:
    placed = placed_by(brokers("aab", fenced=(2,)), 20, 2, random.Random(1))
    assert all(replicas[1] == 2 for replicas in placed)


def test_too_few_brokers() -> None:
    with pytest.raises(ApiError, match=r"only 2 broker\(s\)"):
        placed_by(brokers("ab"), 1, 3, random.Random(1))
    with pytest.raises(ApiError, match="fenced"):
        placed_by(brokers("ab", fenced=(0, 1)), 1, 1, random.Random(1))


def test_one_partition_topics_start_anywhere() -> None:
    starts = {placed_by(brokers("aaa"), 1, 1, random.Random(seed))[0] for seed in range(40)}
    assert len(starts) == 3


def test_replicas_of_one_rack_are_on_brokers_one_after_the_other() -> None:
    """They follow in the order in which the brokers lead, so that all of them follow equally often."""
    for seed in range(5):
        placed = placed_by(brokers("aaaaa"), 10, 3, random.Random(seed))
        ring = [replicas[0] for replicas in placed[:5]]
        assert sorted(ring) == list(range(5))
        assert placed == [tuple(ring[(first + more) % 5] for more in range(3)) for first in range(10)]


def test_brokers_without_a_rack_count_as_one_rack() -> None:
    """Racks are set for some brokers only: no broker is left out, and three copies are on three racks."""
    usable = [UsableBroker(number, rack, False) for number, rack in enumerate(["a", "b", "a", "b", None, None])]
    placed = placed_by(usable, 60, 3, random.Random(5))
    assert all(len({usable[each].rack for each in replicas}) == 3 for replicas in placed)
    assert {replicas[0] for replicas in placed} == set(range(6))


def on_machines(machines: str, racks: str = "") -> list[UsableBroker]:
    """One broker per letter, the letter its machine."""
    return [
        UsableBroker(number, racks[number] if racks else None, fenced=False, host=machine)
        for number, machine in enumerate(machines)
    ]


@pytest.mark.parametrize(
    ("machines", "racks"),
    [
        ("aabb", ""), ("aabbcc", ""), ("aaab", ""), ("aaaabbbbcccc", ""), ("aabbccdd", "xxxxyyyy"), ("aabc", "xxyy"),
        ("aaabbc", "xxxyyy"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("factor", [2, 3])
def test_a_machine_has_two_replicas_only_where_all_have_one(machines: str, racks: str, factor: int) -> None:
    for seed in range(5):
        for replicas in placed_by(on_machines(machines, racks), 120, factor, random.Random(seed)):
            assert len(set(replicas)) == factor
            assert len({machines[broker] for broker in replicas}) == min(factor, len(set(machines)))
            if racks:
                assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks)))


def test_brokers_of_machines_of_one_size_carry_the_same() -> None:
    placed = placed_by(on_machines("aabbcc"), 300, 2, random.Random(3))
    for load in (Counter(replicas[0] for replicas in placed), Counter(replicas[1] for replicas in placed)):
        assert max(load.values()) - min(load.values()) <= 2


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_one_machine_for_all_is_as_no_machine(factor: int) -> None:
    alike = placed_by(on_machines("aaaaa", "xxyyy"), 60, factor, random.Random(7))
    unknown = placed_by(brokers("xxyyy"), 60, factor, random.Random(7))
    assert alike == unknown
