"""The planner: even, striped over racks, and no more moves than it takes."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from odradek.cli.partition_plan import Assignment, PlanError, Replicas, from_json, plan, to_json
from odradek.common.topic_names import TopicPartition


def spread(topic: str, count: int, *brokers: int, factor: int) -> dict[TopicPartition, Replicas]:
    return {
        (topic, number): tuple(brokers[(number + step) % len(brokers)] for step in range(factor))
        for number in range(count)
    }


def after(assignment: Assignment, changes: Assignment) -> dict[TopicPartition, Replicas]:
    return {**assignment, **changes}


def holds(assignment: Assignment) -> Counter[int]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def leads(assignment: Assignment) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def copies(old: Assignment, new: Assignment) -> int:
    return sum(len(set(new[key]) - set(old[key])) for key in new)


def test_a_balanced_plan_moves_nothing() -> None:
    assert plan(dict.fromkeys((1, 2, 3)), spread("t", 9, 1, 2, 3, factor=2)) == {}


def test_two_new_brokers_get_their_share_and_no_more_is_copied() -> None:
    old = spread("t", 30, 1, 2, 3, factor=2)
    new = after(old, plan(dict.fromkeys((1, 2, 3, 4, 5)), old))
    assert set(holds(new).values()) == {12} and set(leads(new).values()) == {6}
    assert copies(old, new) == 24
    assert all(len(set(replicas)) == 2 for replicas in new.values())


def test_brokers_that_are_not_named_are_left() -> None:
    old = spread("t", 12, 1, 2, 3, 4, factor=2)
    new = after(old, plan(dict.fromkeys((1, 2, 3)), old))
    assert set(holds(new)) == {1, 2, 3} and set(holds(new).values()) == {8}
    assert copies(old, new) == 6


def test_every_partition_is_on_both_racks() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "b"}
    old = spread("t", 24, 1, 2, 3, factor=2)
    new = after(old, plan(racks, old))
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in new.values())
    assert set(holds(new).values()) == {8} and set(leads(new).values()) == {4}


def test_racks_count_for_more_than_balance() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    old = {("t", 0): (1, 2), ("t", 1): (2, 1), ("t", 2): (1, 2)}
    new = after(old, plan(racks, old))
    assert all(3 in replicas for replicas in new.values())


def test_load_may_be_bytes() -> None:
    old = {("t", 0): (1,), ("t", 1): (1,), ("t", 2): (1,), ("t", 3): (1,)}
    weights = {("t", 0): 900, ("t", 1): 300, ("t", 2): 300, ("t", 3): 300}
    new = after(old, plan(dict.fromkeys((1, 2)), old, weights))
    loads = Counter[int]()
    for key, (broker,) in new.items():
        loads[broker] += weights[key]
    assert loads == {1: 900, 2: 900}


def test_a_draining_broker_keeps_its_replicas_and_gets_none() -> None:
    old = spread("t", 12, 1, 2, 3, factor=2)
    new = after(old, plan(dict.fromkeys((1, 2, 3, 4)), old, resting=[3]))
    assert {key for key, replicas in new.items() if 3 in replicas} == {key for key in old if 3 in old[key]}
    assert sorted(holds(new)[broker] for broker in (1, 2, 4)) == [5, 5, 6]
    with pytest.raises(PlanError, match="no broker is left"):
        plan(dict.fromkeys((1, 2)), {("t", 0): (9,)}, resting=[1, 2])


def test_more_replicas_than_brokers_cannot_be_planned() -> None:
    with pytest.raises(PlanError, match="t-0 has 3 replicas, and only 2 brokers"):
        plan(dict.fromkeys((1, 2)), {("t", 0): (1, 2, 3)})


@pytest.mark.parametrize("seed", range(30))
def test_any_cluster_ends_even_and_striped_and_is_stable_then(seed: int) -> None:
    chance = random.Random(seed)
    brokers = list(range(chance.randrange(2, 9)))
    racks: dict[int, str | None] = {broker: chance.choice("abc") for broker in brokers}
    everywhere = [*brokers, 97, 98]
    old: dict[TopicPartition, Replicas] = {}
    for topic in "xyz":
        factor = chance.randrange(1, min(len(brokers), 4) + 1)
        for number in range(chance.randrange(1, 20)):
            old[topic, number] = tuple(chance.sample(everywhere, factor))
    new = after(old, plan(racks, old))
    assert set(new) == set(old)
    for key, replicas in new.items():
        assert len(set(replicas)) == len(replicas) == len(old[key]) and set(replicas) <= set(brokers)
        possible = min(len(replicas), len(set(racks.values())))
        assert len({racks[broker] for broker in replicas}) == possible
    if len(set(racks.values())) == 1:
        counts = [holds(new)[broker] for broker in brokers]
        assert max(counts) - min(counts) <= 1
    assert plan(racks, new) == {}


def test_a_plan_may_move_nothing() -> None:
    assert from_json(json.dumps(to_json({}))) == {}


def test_kafkas_format_there_and_back() -> None:
    moved = {("t", 1): (3, 1), ("t", 0): (1, 2)}
    text = json.dumps(to_json(moved))
    assert from_json(text) == moved
    assert json.loads(text)["partitions"][0] == {
        "topic": "t",
        "partition": 0,
        "replicas": [1, 2],
        "log_dirs": ["any", "any"],
    }


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "not a reassignment"),
        ("[]", "not a reassignment"),
        ("{}", "not a reassignment"),
        ('{"version":2,"partitions":[]}', "version 2"),
        ('{"version":1,"partitions":{}}', "must be a list"),
        ('{"partitions":[{"topic":"t"}]}', "needs topic, partition and replicas"),
        ('{"partitions":[7]}', "needs topic, partition and replicas"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[]}]}', "has no replicas"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}', "names a broker twice"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":["1"]}]}', "that are numbers"),
        ('{"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}', "that are numbers"),
        ('{"partitions":[{"topic":"t","partition":true,"replicas":[1]}]}', "that are numbers"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":3}]}', "that are numbers"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}',
            "named twice",
        ),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/a"]}]}', 'only "any"'),
    ],
)
def test_invalid_plan_files(text: str, reported: str) -> None:
    with pytest.raises(PlanError, match=reported):
        from_json(text)


def test_every_partition_is_on_both_machines_of_its_racks() -> None:
    racks, hosts = dict.fromkeys((1, 2, 3, 4)), {1: "a", 2: "a", 3: "b", 4: "b"}
    old = spread("t", 12, 1, 2, factor=2)
    new = after(old, plan(racks, old, hosts=hosts))
    assert all({hosts[broker] for broker in replicas} == {"a", "b"} for replicas in new.values())
    assert set(holds(new).values()) == {6} and copies(old, new) == 12
    assert plan(racks, new, hosts=hosts) == {}


def test_racks_count_for_more_than_machines() -> None:
    racks, hosts = {1: "x", 2: "x", 3: "y"}, {1: "a", 2: "b", 3: "c"}
    assert plan(racks, {("t", 0): (1, 2)}, hosts=hosts) == {("t", 0): (1, 3)}


def test_one_machine_for_all_moves_nothing() -> None:
    old = spread("t", 9, 1, 2, 3, factor=2)
    assert plan(dict.fromkeys((1, 2, 3)), old, hosts=dict.fromkeys((1, 2, 3), "laptop")) == {}
