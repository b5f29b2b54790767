"""The brokers of a machine: ids, ports and disks follow from their order, and stay the same when it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.common.errors import ConfigError
from odradek.host.lines import marked
from odradek.host.plan import HostPlan, next_first_id, plan_host, share_out, votes_here, without_a_file

FILE = {
    "listeners": "PLAINTEXT://:9092,SSL://:9192,CONTROLLER://:9292",
    "advertised.listeners": "PLAINTEXT://a:9092,SSL://a:9192,CONTROLLER://a:9292",
    "odradek.metrics.listener": "0.0.0.0:9400",
    "min.insync.replicas": "2",
}


def disks(*names: str) -> list[Path]:
    return [Path("/", name) for name in names]


def shared(count: int, *names: str) -> dict[int, list[str]]:
    found = share_out(disks(*names), {}, range(1, count + 1))
    return {broker: [str(each) for each in dirs] for broker, dirs in found.items()}


def planned(file: dict[str, str], brokers: int = 2, *, votes: int = 1, controllers: tuple[str, ...] = ()) -> HostPlan:
    directories = share_out(disks("a"), {}, range(1, brokers + 1))
    return plan_host(file, directories, first_id=1, votes=votes, controllers=controllers)


def test_disks_are_shared_out_so_that_each_is_used() -> None:
    assert shared(2, "a", "b") == {1: ["/a/broker-1"], 2: ["/b/broker-2"]}
    assert shared(4, "a", "b") == {1: ["/a/broker-1"], 2: ["/b/broker-2"], 3: ["/a/broker-3"], 4: ["/b/broker-4"]}
    assert shared(2, "a", "b", "c") == {1: ["/a/broker-1", "/c/broker-1"], 2: ["/b/broker-2"]}


def test_brokers_keep_their_disks_when_brokers_or_disks_come() -> None:
    first = share_out(disks("a", "b", "c"), {}, [1, 2])
    more = share_out(disks("a", "b", "c"), first, [1, 2, 3])
    assert {each: more[each] for each in (1, 2)} == first
    assert more[3] == [Path("/a/broker-3")]
    with_a_disk = share_out(disks("a", "b", "c", "d"), first, [1, 2])
    assert with_a_disk == {1: first[1], 2: [*first[2], Path("/d/broker-2")]}


def test_each_broker_has_the_next_id_and_the_next_ports() -> None:
    plan = planned(FILE, controllers=("b:9292",))
    first, second = plan.brokers
    assert first.properties["listeners"] == "PLAINTEXT://:9092,SSL://:9192,CONTROLLER://:9292"
    assert second.properties["listeners"] == "PLAINTEXT://:9093,SSL://:9193"
    assert second.properties["advertised.listeners"] == "PLAINTEXT://a:9093,SSL://a:9193"
    assert [each.properties["process.roles"] for each in plan.brokers] == ["broker,controller", "broker"]
    assert [each.properties["node.id"] for each in plan.brokers] == ["1", "2"]
    assert [each.pages for each in plan.brokers] == [("0.0.0.0", 9401), ("0.0.0.0", 9402)]
    assert plan.bootstrap == "a:9092,a:9093"
    assert {each.properties["controller.quorum.bootstrap.servers"] for each in plan.brokers} == {"a:9292,b:9292"}
    assert [each.properties.get("controller.quorum.auto.join.enable") for each in plan.brokers] == ["true", None]
    assert {each.properties["min.insync.replicas"] for each in plan.brokers} == {"2"}


def test_static_voters_say_who_is_a_controller() -> None:
    plan = planned({**FILE, "controller.quorum.voters": "2@a:9293,7@b:9292"})
    assert [each.votes for each in plan.brokers] == [False, True]
    assert all("controller.quorum.bootstrap.servers" not in each.properties for each in plan.brokers)


def test_without_a_file_brokers_are_of_this_machine_alone() -> None:
    plan = planned(without_a_file(2, 9092))
    assert plan.bootstrap == "127.0.0.1:9092,127.0.0.1:9093"
    assert plan.brokers[0].listeners["CONTROLLER"] == "127.0.0.1:19092"
    assert plan.brokers[0].properties["offsets.topic.replication.factor"] == "2"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"node.id": "3"}, "node.id: follows from the place"),
        ({"log.dirs": "/x"}, "log.dirs: follows from the place"),
        ({"listeners": "PLAINTEXT://:9092"}, "none for a controller"),
        ({"listeners": "CONTROLLER://:9092"}, "none for clients"),
        ({"listeners": "PLAINTEXT://:0,CONTROLLER://:9292"}, "must be host:port"),
        ({"listeners": "PLAINTEXT:9092,CONTROLLER://:9292"}, "must be NAME://host:port"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "port 9093: CONTROLLER of broker 1 and PLAINTEXT of"),
        ({"listeners": "PLAINTEXT://:65535,CONTROLLER://:9292"}, "port 65536"),
        ({"odradek.metrics.listener": "9400"}, "odradek.metrics.listener"),
        ({"controller.quorum.voters": "x@a:1"}, "must be id@host:port"),
    ],
)
def test_settings_that_nodes_cannot_share_are_refused(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        planned({**FILE, "advertised.listeners": "", **changes})
    assert problem in str(refused.value)


def test_up_to_three_machines_vote_and_racks_without_a_voter_come_first() -> None:
    on_a, on_b = ("r1", "a"), ("r1", "b")
    assert votes_here(on_b, [on_a], [on_a])
    assert not votes_here(on_a, [on_a], [on_a])  # a second host of one machine
    elsewhere = ("r2", "c")
    assert not votes_here(on_b, [on_a], [on_a, elsewhere])
    assert votes_here(elsewhere, [on_a], [on_a, elsewhere])
    assert votes_here(on_b, [on_a, elsewhere], [on_a, elsewhere])
    assert not votes_here(("r3", "d"), [on_a, on_b, elsewhere], [])
    assert votes_here((None, "b"), [(None, "a")], [(None, "a")])


def test_each_machine_has_a_hundred_ids() -> None:
    assert next_first_id([]) == 1
    assert next_first_id([1, 2, 3]) == 101
    assert next_first_id([1, 101, 199]) == 201


def test_a_line_says_which_broker_it_is_from() -> None:
    assert marked(3, b"2026 INFO x") == b"[3] 2026 INFO x\n"
    assert marked(3, b'{"time": "x"}') == b'{"node": 3, "time": "x"}\n'
