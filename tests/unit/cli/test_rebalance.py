"""The planner of `odradek rebalance`: the rules that it never breaks, and the balance that it reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.partition_plan import Replicas
from odradek.cli.rebalance.balance import Balance, Load, Weights, rebalance
from odradek.common.topic_names import TopicPartition

Assignment = dict[TopicPartition, Replicas]
World = tuple[dict[int, str | None], Assignment, dict[TopicPartition, Weights], set[int]]


@st.composite
def worlds(draw: st.DrawFn, *, striped: bool = False) -> World:
    """Up to six brokers in up to three racks, some of them resting, and up to fifteen partitions anywhere.

    Where it is striped every partition is on as many racks as it can be: all are in one, or each is in its own.
    """
    brokers = list(range(1, draw(st.integers(1, 6)) + 1))
    racks: dict[int, str | None] = {broker: draw(st.sampled_from([None, "a", "b", "c"])) for broker in brokers}
    if striped:
        racks = dict.fromkeys(brokers) if draw(st.booleans()) else {broker: str(broker) for broker in brokers}
    resting = draw(st.sets(st.sampled_from(brokers), max_size=len(brokers) - 1))
    assignment, weights = {}, {}
    for number in range(draw(st.integers(0, 15))):
        replicas = draw(st.lists(st.sampled_from(brokers), min_size=1, max_size=3, unique=True))
        assignment["t", number] = tuple(replicas)
        weights["t", number] = Weights(draw(st.integers(0, 10**9)), draw(st.integers(0, 10**6)))
    return racks, assignment, weights, resting


def racks_of(replicas: Replicas, racks: Mapping[int, str | None]) -> set[str]:
    return {racks[broker] or "" for broker in replicas}


@given(worlds(), st.floats(0.01, 1))
def test_every_partition_keeps_its_copies_on_brokers_of_their_own(world: World, tolerance: float) -> None:
    racks, assignment, weights, resting = world
    changes, _, _ = rebalance(racks, assignment, weights, resting, tolerance=tolerance)
    for key, replicas in changes.items():
        assert len(set(replicas)) == len(replicas) == len(assignment[key])
        assert set(replicas) <= racks.keys()
        assert len(racks_of(replicas, racks)) >= len(racks_of(assignment[key], racks))
        # A resting broker keeps its replicas, in their place or as another follower, and gets none.
        assert set(replicas) & resting == set(assignment[key]) & resting


@given(worlds(striped=True), st.floats(0.01, 1))
def test_no_load_gets_worse_than_before_or_allowed(world: World, tolerance: float) -> None:
    racks, assignment, weights, resting = world
    _, before, after = rebalance(racks, assignment, weights, resting, tolerance=tolerance)
    assert after.unevenness <= before.unevenness + 1e-6
    for load in Load:
        bound = tolerance if load in (Load.DISK, Load.TRAFFIC) else max(tolerance, 1 / (before.means[load] or 1))
        assert after.spread(load) <= max(before.spread(load), bound) + 1e-6


@given(worlds())
def test_the_loads_of_a_plan_are_those_of_its_assignment(world: World) -> None:
    racks, assignment, weights, resting = world
    _, _, after = rebalance(racks, assignment, weights, resting)
    again = Balance(racks, {key: list(found) for key, found in after.assignment.items()}, weights, resting)
    for broker, loads in after.loads.items():
        assert loads == pytest.approx(again.loads[broker], abs=1e-3)


@given(worlds())
def test_a_plan_that_is_carried_out_leaves_nothing_to_do(world: World) -> None:
    racks, assignment, weights, resting = world
    changes, _, _ = rebalance(racks, assignment, weights, resting)
    assert rebalance(racks, {**assignment, **changes}, weights, resting)[0] == {}


@given(worlds(striped=True), st.integers(0, 10**9))
def test_copied_bytes_are_within_the_limit(world: World, limit: int) -> None:
    racks, assignment, weights, resting = world
    changes, _, _ = rebalance(racks, assignment, weights, resting, limit_bytes=limit)
    assert sum(weights[key].disk * len({*new} - {*assignment[key]}) for key, new in changes.items()) <= limit


def spread(count: int, *brokers: int, copies: int) -> Assignment:
    return {
        ("t", number): tuple(brokers[(number + step) % len(brokers)] for step in range(copies))
        for number in range(count)
    }


def evenly(assignment: Mapping[TopicPartition, Replicas], disk: float = 100.0) -> dict[TopicPartition, Weights]:
    return dict.fromkeys(assignment, Weights(disk, 10.0))


def test_a_balanced_cluster_is_not_changed() -> None:
    assignment = spread(9, 1, 2, 3, copies=2)
    assert rebalance(dict.fromkeys((1, 2, 3)), assignment, evenly(assignment))[0] == {}


def test_a_new_broker_gets_its_share_and_no_more_is_copied() -> None:
    assignment = spread(30, 1, 2, 3, copies=2)
    changes, _, after = rebalance(dict.fromkeys((1, 2, 3, 4)), assignment, evenly(assignment), tolerance=0.01)
    assert {loads[Load.REPLICAS] for loads in after.loads.values()} <= {14, 15, 16}
    assert all(abs(loads[Load.LEADERS] - 7.5) <= 1 for loads in after.loads.values())
    copied = sum(len({*new} - {*assignment[key]}) for key, new in changes.items())
    assert 14 <= copied <= 16


def test_leaders_alone_are_uneven_and_nothing_is_copied() -> None:
    assignment = {("t", number): (1, 2, 3) for number in range(9)}
    changes, _, after = rebalance(dict.fromkeys((1, 2, 3)), assignment, evenly(assignment))
    assert all({*new} == {1, 2, 3} for new in changes.values())
    assert Counter(replicas[0] for replicas in map(tuple, after.assignment.values())) == {1: 3, 2: 3, 3: 3}


def test_large_replicas_move_off_a_full_disk() -> None:
    """Replicas and leaders are even; one broker has the large ones."""
    assignment = {("t", number): (1 + number % 2,) for number in range(8)}
    weights = {key: Weights(1000.0 if key[1] % 2 == 0 else 10.0) for key in assignment}
    changes, before, after = rebalance(dict.fromkeys((1, 2)), assignment, weights)
    assert before.spread(Load.DISK) > 0.9 and after.spread(Load.DISK) < before.spread(Load.DISK) / 1.5
    assert changes


def test_traffic_counts_more_for_leaders() -> None:
    assignment = {("t", number): (1, 2, 3) for number in range(3)} | {("u", number): (2, 3, 1) for number in range(3)}
    weights = {key: Weights(100.0, 1000.0 if key[0] == "t" else 0.0) for key in assignment}
    balance = Balance(dict.fromkeys((1, 2, 3)), {key: list(found) for key, found in assignment.items()}, weights)
    # Each of three partitions is written to with 1,000 B/s, and sent on to two followers.
    assert [balance.loads[broker][Load.TRAFFIC] for broker in (1, 2, 3)] == [9000.0, 3000.0, 3000.0]
    changes, _, after = rebalance(balance.racks, assignment, weights)
    assert after.spread(Load.TRAFFIC) < 0.1 and all({*new} == {1, 2, 3} for new in changes.values())


def test_replicas_that_share_a_rack_move_at_any_cost() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assignment = {("t", number): (1, 2) for number in range(4)}
    changes, _, _ = rebalance(racks, assignment, evenly(assignment), limit_bytes=0)
    assert all(racks_of(changes[key], racks) == {"a", "b"} for key in assignment)


def test_a_draining_broker_gets_no_replica() -> None:
    assignment = spread(12, 1, 2, copies=1)
    changes, _, after = rebalance(dict.fromkeys((1, 2, 3, 4)), assignment, evenly(assignment), resting={4})
    assert changes and 4 not in after.loads
    assert 4 not in {broker for replicas in changes.values() for broker in replicas}


def test_replicas_that_share_a_machine_move_first() -> None:
    racks, hosts = dict.fromkeys((1, 2, 3, 4)), {1: "a", 2: "a", 3: "b", 4: "b"}
    assignment: Assignment = {("t", number): ((1, 2), (3, 4))[number % 2] for number in range(4)}
    changes, _, _ = rebalance(racks, assignment, {}, hosts=hosts)
    for replicas in {**assignment, **changes}.values():
        assert {hosts[broker] for broker in replicas} == {"a", "b"}
