"""`odradek groups` against a node, with members of a stock client in them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.cli import errors
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import commit_alone, create_topic, produce_all
from tests.support.nodes.node import Node
from tests.support.waiting import eventually


@contextmanager
def member(node: Node, group: str, topic: str) -> Iterator[Consumer]:
    """A consumer that has its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "client.id": "stock",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.assignment() or (consumer.poll(0.1) and False))
        yield consumer
    finally:
        consumer.close()


def filled(node: Node, topic: str, partitions: int = 2, count: int = 100) -> None:
    create_topic(node.bootstrap, topic, partitions, retention_ms=-1)  # its records are from 1970
    for partition in range(partitions):
        produce_records(node, topic, partition, count)


def produce_records(node: Node, topic: str, partition: int, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "batch.num.messages": 10})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition, timestamp=1_000_000 + number * 1000)
    assert producer.flush(120) == 0


def committed(node: Node, group: str) -> dict[tuple[str, int], int]:
    (found,) = odradek(node.bootstrap, "groups", "describe", "--group", group, "--rate-over", 0, "--json").json
    return {(each["topic"], each["partition"]): each["current_offset"] for each in found["offsets"]}


def state_and_members(node: Node, group: str) -> tuple[str, list[Any]]:
    (found,) = odradek(node.bootstrap, "groups", "describe", "--group", group, "--rate-over", 0, "--json").json
    return found["state"], found["members"]


def test_a_group_with_a_member(node: Node) -> None:
    filled(node, "watched")
    with member(node, "watchers", "watched") as consumer:
        consumer.commit(offsets=[TopicPartition("watched", 0, 40)], asynchronous=False)
        listed = {each["group"]: each for each in odradek(node.bootstrap, "groups", "list", "--json").json}
        assert listed["watchers"] == {
            "group": "watchers",
            "type": "classic",
            "protocol": "consumer",
            "state": "Stable",
        }
        assert not any(
            each["group"] == "watchers"
            for each in odradek(node.bootstrap, "groups", "list", "--state", "Empty", "--json").json
        )
        (found,) = odradek(node.bootstrap, "groups", "describe", "--group", "watchers", "--json").json
        assert (found["state"], found["coordinator"], len(found["members"])) == ("Stable", 1, 1)
        assert found["members"][0]["client_id"] == "stock"
        assert [one["partition"] for one in found["members"][0]["assignment"]] == [0, 1]
        offsets = {each["partition"]: each for each in found["offsets"]}
        assert (offsets[0]["current_offset"], offsets[0]["log_end_offset"], offsets[0]["lag"]) == (40, 100, 60)
        assert (offsets[1]["current_offset"], offsets[1]["log_end_offset"], offsets[1]["lag"]) == (None, 100, None)
        assert offsets[1]["client_id"] == "stock"
        assert (offsets[0]["read_per_s"], offsets[0]["written_per_s"], offsets[1]["read_per_s"]) == (0.0, 0.0, None)
        rows = odradek(node.bootstrap, "groups", "describe", "--group", "watchers").rows
        assert rows[1][:6] == ["watchers", "watched", "0", "40", "100", "60"]
        assert rows[2][:6] == ["watchers", "watched", "1", "-", "100", "-"]
        members = odradek(node.bootstrap, "groups", "describe", "--group", "watchers", "--members").rows
        assert members[1][-2:] == ["2", "watched-0,watched-1"]
        state = odradek(node.bootstrap, "groups", "describe", "--group", "watchers", "--state").rows
        assert state[1][-2:] == ["Stable", "1"]

        # Commands that a group with members refuses.
        for arguments, said in (
            (["delete", "--group", "watchers"], "NON_EMPTY_GROUP"),
            (["reset", "--group", "watchers", "--all-topics", "--to-earliest", "--execute"], "is in use"),
            (["reset", "--group", "watchers", "--all-topics", "--to-earliest"], "is in use"),
        ):
            refused = odradek(node.bootstrap, "groups", *arguments, code=errors.FAILED)
            assert said in refused.err
        gone = odradek(
            node.bootstrap,
            "groups",
            "offsets",
            "delete",
            "--group",
            "watchers",
            "--topic",
            "watched",
            code=errors.FAILED,
        )
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in gone.out
        assert committed(node, "watchers")["watched", 0] == 40
    eventually(lambda: state_and_members(node, "watchers") == ("Empty", []))


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 100, 1: 100}),
        (["--to-current"], {0: 50, 1: 60}),
        (["--to-offset", "7"], {0: 7, 1: 7}),
        (["--to-offset", "700"], {0: 100, 1: 100}),
        (["--shift-by", "-20"], {0: 30, 1: 40}),
        (["--shift-by", "-55"], {0: 0, 1: 5}),
        (["--shift-by", "45"], {0: 95, 1: 100}),
        (["--to-datetime", "1970-01-01T00:17:00.000"], {0: 20, 1: 20}),
        (["--to-datetime", "1970-01-01T02:17:00.000+02:00"], {0: 20, 1: 20}),
        (["--to-datetime", "2100-01-01T00:00:00.000"], {0: 100, 1: 100}),
        (["--by-duration", "P100000D"], {0: 0, 1: 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_group_is_reset_to_a_position(node: Node, position: list[str], expected: dict[int, int]) -> None:
    if "moved" not in odradek(node.bootstrap, "topics", "list", "--json").json:
        filled(node, "moved")
    before = {("moved", 0): 50, ("moved", 1): 60}
    commit_alone(node.bootstrap, "movers", before)
    shown = odradek(node.bootstrap, "groups", "reset", "--group", "movers", "--all-topics", *position, "--json")
    plan = shown.json
    assert plan["executed"] is False
    assert {each["partition"]: each["new_offset"] for each in plan["offsets"]} == expected
    assert {each["partition"]: each["current_offset"] for each in plan["offsets"]} == {0: 50, 1: 60}
    assert committed(node, "movers") == before
    odradek(node.bootstrap, "groups", "reset", "--group", "movers", "--topic", "moved", *position, "--execute")
    assert committed(node, "movers") == {("moved", index): offset for index, offset in expected.items()}


def test_one_partition_a_new_group_and_a_file(node: Node, tmp_path: Path) -> None:
    filled(node, "filed")
    reset = ("groups", "reset", "--group", "filers")
    odradek(node.bootstrap, *reset, "--topic", "filed:1", "--to-offset", 30, "--execute")
    assert committed(node, "filers") == {("filed", 1): 30}
    exported = odradek(node.bootstrap, *reset, "--topic", "filed", "--to-latest", "--export").out
    assert exported == "filed,0,100\nfiled,1,100\n"
    file = tmp_path / "plan.csv"
    file.write_text("filed,0,11\nfiled,1,12\n")
    odradek(node.bootstrap, *reset, "--from-file", file, "--execute")
    assert committed(node, "filers") == {("filed", 0): 11, ("filed", 1): 12}
    dry = odradek(node.bootstrap, *reset, "--topic", "filed", "--to-latest", "--dry-run")
    assert "pass --execute" in dry.err
    assert committed(node, "filers") == {("filed", 0): 11, ("filed", 1): 12}


def test_how_fast_a_group_reads_and_falls_behind(node: Node) -> None:
    filled(node, "paced", 1, 10)
    commit_alone(node.bootstrap, "pacers", {("paced", 0): 0})
    done = threading.Event()

    def work() -> None:
        offset = 0
        while not done.is_set():
            offset += 1
            produce_records(node, "paced", 0, 5)
            commit_alone(node.bootstrap, "pacers", {("paced", 0): offset})

    thread = threading.Thread(target=work)
    thread.start()

    def falls_behind() -> bool:
        (found,) = odradek(node.bootstrap, "groups", "describe", "--group", "pacers", "--rate-over", 2, "--json").json
        (row,) = found["offsets"]
        return bool(row["written_per_s"] > row["read_per_s"] > 0)

    try:
        eventually(falls_behind)  # a busy machine may not commit once in two seconds
    finally:
        done.set()
        thread.join()


def test_deleted_offsets_and_groups_are_gone(node: Node) -> None:
    filled(node, "kept", 1)
    filled(node, "dropped", 2)
    offsets = {("kept", 0): 5, ("dropped", 0): 6, ("dropped", 1): 7}
    commit_alone(node.bootstrap, "leavers", offsets)
    assert committed(node, "leavers") == offsets
    deleted: Any = odradek(
        node.bootstrap, "groups", "offsets", "delete", "--group", "leavers", "--topic", "dropped:1", "--json"
    ).json
    assert deleted == [{"topic": "dropped", "partition": 1, "result": "deleted"}]
    assert committed(node, "leavers") == {("kept", 0): 5, ("dropped", 0): 6}
    odradek(node.bootstrap, "groups", "delete", "--group", "leavers")
    gone = odradek(node.bootstrap, "groups", "describe", "--group", "leavers", code=errors.NOT_FOUND)
    assert "`odradek groups list` shows which groups there are" in gone.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["describe", "--group", "unknown"], errors.NOT_FOUND, "GROUP_ID_NOT_FOUND"),
        (["delete", "--group", "unknown"], errors.NOT_FOUND, "GROUP_ID_NOT_FOUND"),
        (["offsets", "delete", "--group", "unknown", "--topic", "t"], errors.NOT_FOUND, "GROUP_ID_NOT_FOUND"),
        (["reset", "--group", "unknown", "--all-topics", "--to-earliest"], 1, "it has committed nothing"),
        (["reset", "--group", "unknown", "--topic", "no", "--to-earliest"], errors.NOT_FOUND, "topic no"),
        (
            ["reset", "--group", "unknown", "--topic", "some:9", "--to-earliest"],
            errors.NOT_FOUND,
            "no partition 9",
        ),
        (["list", "--state", "Emtpy"], errors.USAGE, "--state Emtpy: must be one of"),
        (["list", "--type", "clasic"], errors.USAGE, "--type clasic: must be one of classic"),
        (
            ["reset", "--group", "unknown", "--topic", "some", "--by-duration", "P99999999999D"],
            5,
            "no record is that old",
        ),
        (["reset", "--group", "unknown", "--topic", "some", "--shift-by", "1"], 1, "to shift; use --to-offset"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_groups_that_do_not_exist(node: Node, arguments: list[str], code: int, said: str) -> None:
    odradek(node.bootstrap, "topics", "create", "--topic", "some", "--if-not-exists")
    ran = odradek(node.bootstrap, "groups", *arguments, code=code)
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_existing_groups_are_handled_beside_missing_ones(node: Node) -> None:
    filled(node, "shared", 2)
    for group in ("early", "late"):
        commit_alone(node.bootstrap, group, {("shared", 0): 5})
    names = ("--group", "early", "--group", "absent", "--group", "late")
    described = odradek(node.bootstrap, "groups", "describe", *names, "--rate-over", 0, "--json", code=errors.NOT_FOUND)
    assert [each["group"] for each in described.json] == ["early", "late"]
    assert "absent" in described.err and described.err.count("\n") == 1
    partly = ("offsets", "delete", "--group", "early", "--topic", "shared:0,9", "--topic", "mistyped")
    ran = odradek(node.bootstrap, "groups", *partly, "--json", code=errors.FAILED)
    assert ran.json == [{"topic": "shared", "partition": 0, "result": "deleted"}]
    assert "nothing was committed for mistyped" in ran.err and "nothing was committed for shared-9" in ran.err
    with member(node, "late", "shared"):
        ran = odradek(node.bootstrap, "groups", "delete", *names, "--json", code=errors.NOT_FOUND)
    assert ran.json == {"deleted": ["early"]}
    assert [name for name in ("early", "absent", "late") if name in ran.err] == ["absent", "late"]


def test_a_file_for_other_groups_names_nothing(node: Node, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("other,shared,0,5\n")
    arguments = ("groups", "reset", "--group", "mine", "--from-file", plan)
    assert "has nothing for group mine" in odradek(node.bootstrap, *arguments, code=errors.BAD_CONFIG).err
    ran = odradek(node.bootstrap, *arguments, "--topic", "shared", code=errors.USAGE)
    assert "--from-file names the topics" in ran.err


def test_a_topic_that_was_deleted_does_not_hide_the_rest(node: Node) -> None:
    filled(node, "alive", 1)
    filled(node, "dead", 1)
    commit_alone(node.bootstrap, "mourners", {("alive", 0): 5, ("dead", 0): 6})
    produce_all(node.bootstrap, "alive", [(None, b"x")])
    odradek(node.bootstrap, "topics", "delete", "--topic", "dead")
    (found,) = odradek(node.bootstrap, "groups", "describe", "--group", "mourners", "--json").json
    rows = {each["topic"]: (each["current_offset"], each["lag"]) for each in found["offsets"]}
    assert rows["alive"] == (5, 96)
    assert rows.get("dead", (6, None)) == (6, None)
