"""Replicas and leaders move between real brokers, by the commands that people use."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cli import errors
from odradek.testing.processes import ProcessCluster
from tests.support.clients.cli import Ran, odradek
from tests.support.clients.confluent import produce_all, read_all
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Four brokers on two racks; the first three are the quorum, so that the fourth may come and go."""
    directory = tmp_path_factory.mktemp("cluster")
    # Leaders return when a test asks for it, and not when five minutes have passed.
    settings = {"auto.leader.rebalance.enable": "false"}
    with ProcessCluster(directory, brokers=4, racks=["a", "b"], settings=settings) as running:
        yield running


def run(cluster: ProcessCluster, *arguments: object, code: int | None = 0) -> Ran:
    return odradek(cluster.bootstrap_servers, *arguments, code=code)


def create(cluster: ProcessCluster, topic: str, assignment: str, *config: str) -> None:
    options = [word for each in config for word in ("--config", each)]
    run(cluster, "topics", "create", "--topic", topic, "--replica-assignment", assignment, *options)


def partitions(cluster: ProcessCluster, topic: str) -> dict[int, dict[str, Any]]:
    (shown,) = run(cluster, "topics", "describe", "--topic", topic, "--json").json
    return {each["partition"]: each for each in shown["partitions"]}


def assert_values(cluster: ProcessCluster, topic: str, count: int, written: list[bytes]) -> None:
    """Wait until each record is there once; a new leader may learn the high watermark a moment later."""

    def found() -> list[bytes]:
        return sorted(message.value() or b"" for message in read_all(cluster.bootstrap_servers, topic, count))

    eventually(lambda: len(found()) >= len(written), f"as many records as were written are in {topic}")
    assert found() == written


def write(cluster: ProcessCluster, topic: str, start: int, count: int) -> list[bytes]:
    written = [b"%05d" % number for number in range(start, start + count)]
    produce_all(cluster.bootstrap_servers, topic, [(value, value) for value in written], acks="all")
    return written


def directories(cluster: ProcessCluster, topic: str) -> dict[str, set[int]]:
    """The brokers that have a directory of each partition."""
    found: dict[str, set[int]] = {}
    for node in cluster.brokers:
        for path in node.plan.data_dir.glob(f"{topic}-[0-9]"):
            found.setdefault(path.name, set()).add(node.node_id)
    return found


def test_a_plan_is_made_shown_and_run(cluster: ProcessCluster, tmp_path: Path) -> None:
    create(cluster, "planned", "1:2,2:1,1:2,2:1")
    written = write(cluster, "planned", 0, 200)
    plan_file, back = tmp_path / "plan.json", tmp_path / "back.json"
    shown = run(cluster, "partitions", "plan", "--topic", "planned", "--out", plan_file, "--rollback", back).out
    assert "REPLICAS-PLANNED" in shown and "planned" in shown
    plan = json.loads(plan_file.read_text())
    held = [broker for entry in plan["partitions"] for broker in entry["replicas"]]
    assert {3, 4} <= set(held) and all(entry["log_dirs"] for entry in plan["partitions"])
    assert run(cluster, "partitions", "move", "--plan", plan_file, code=errors.USAGE).err.count("--yes") == 1
    assert "COPIES" in run(cluster, "partitions", "move", "--plan", plan_file, "--dry-run").out
    assert partitions(cluster, "planned")[0]["replicas"] == [1, 2], "nothing has moved yet"
    run(cluster, "partitions", "move", "--plan", plan_file, "--yes", "--wait")
    now = partitions(cluster, "planned")
    for entry in plan["partitions"]:
        assert now[entry["partition"]]["replicas"] == entry["replicas"]
        assert sorted(now[entry["partition"]]["isr"]) == sorted(entry["replicas"])
    assert_values(cluster, "planned", 4, written)
    assert {row["state"] for row in run(cluster, "partitions", "status", "--plan", plan_file, "--json").json} == {
        "done"
    }
    wanted = {f"planned-{number}": set(each["replicas"]) for number, each in now.items()}
    eventually(lambda: directories(cluster, "planned") == wanted, "replicas that left are gone from the disks")
    run(cluster, "partitions", "elect", "--all")
    assert "evenly" in run(cluster, "partitions", "plan", "--topic", "planned").out
    run(cluster, "partitions", "move", "--plan", back, "--yes", "--wait")
    assert all(set(each["replicas"]) == {1, 2} for each in partitions(cluster, "planned").values())
    assert_values(cluster, "planned", 4, written)


def test_a_move_that_cannot_end_is_seen_and_called_off(cluster: ProcessCluster) -> None:
    create(cluster, "stuck", "1:2")
    written = write(cluster, "stuck", 0, 50)
    cluster[4].kill()
    try:
        run(cluster, "partitions", "move", "--to", "stuck-0=4,1", "--yes")
        (row,) = run(cluster, "partitions", "status", "--json").json
        assert (row["topic"], row["state"], row["adding"], row["removing"]) == ("stuck", "moving", [4], [2])
        assert "moving" in run(cluster, "partitions", "status", "--partition", "stuck-0").out
        written += write(cluster, "stuck", 50, 50)
        run(cluster, "partitions", "cancel", "--partition", "stuck-0")
        assert partitions(cluster, "stuck")[0]["replicas"] == [1, 2]
        assert "Nothing moves" in run(cluster, "partitions", "status").out
        again = run(cluster, "partitions", "cancel", "--partition", "stuck-0", code=errors.FAILED)
        assert "NO_REASSIGNMENT_IN_PROGRESS" in again.err
        assert_values(cluster, "stuck", 1, written)
    finally:
        cluster[4].start()


def test_a_throttled_move_is_seen_on_its_way_and_the_throttle_ends_with_it(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    create(cluster, "slow", "1:2")
    values_of = [(b"%d" % number, os.urandom(50_000)) for number in range(80)]
    produce_all(cluster.bootstrap_servers, "slow", values_of, acks="all")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [3, 1]}]}))
    run(cluster, "partitions", "move", "--plan", plan, "--yes", "--throttle", 500_000)
    seen = []

    def moved() -> bool:
        (row,) = run(cluster, "partitions", "status", "--plan", plan, "--json").json
        seen.append((row["copied_bytes"], row["total_bytes"]))
        return bool(row["state"] == "done")

    (topic,) = run(cluster, "topics", "describe", "--topic", "slow", "--json").json
    assert topic["configs"]["follower.replication.throttled.replicas"] == "0:3"
    eventually(moved, "it has moved")
    assert any(0 < copied < total for copied, total in seen), f"it was seen half way: {seen}"
    (topic,) = run(cluster, "topics", "describe", "--topic", "slow", "--json").json
    assert topic["configs"] == {}, "the throttle has ended"
    assert partitions(cluster, "slow")[0]["replicas"] == [3, 1]


def test_replicas_moved_while_their_broker_was_down_leave_its_disk(cluster: ProcessCluster) -> None:
    create(cluster, "away", "4:1,1:4")
    written = write(cluster, "away", 0, 60)
    cluster[4].kill()
    try:
        run(cluster, "partitions", "move", "--to", "away-0=2,1", "--to", "away-1=1,2", "--yes", "--wait")
    finally:
        cluster[4].start()
    wanted = {"away-0": {1, 2}, "away-1": {1, 2}}
    eventually(lambda: directories(cluster, "away") == wanted, "the broker finds that others hold it")
    assert_values(cluster, "away", 2, written)


def test_plans_that_cannot_be_move_nothing(cluster: ProcessCluster, tmp_path: Path) -> None:
    create(cluster, "kept", "1:2,2:3", "min.insync.replicas=2")
    before = partitions(cluster, "kept")
    plan = {
        "version": 1,
        "partitions": [
            {"topic": "kept", "partition": 0, "replicas": [3, 4]},
            {"topic": "kept", "partition": 1, "replicas": [2, 77]},
            {"topic": "kept", "partition": 9, "replicas": [2, 3]},
            {"topic": "no-such", "partition": 0, "replicas": [2, 3]},
        ],
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    reported = run(cluster, "partitions", "move", "--plan", path, "--yes", code=errors.FAILED).err
    assert "no broker 77" in reported and "kept-9 does not exist" in reported and "no-such-0 does not exist" in reported
    few = run(cluster, "partitions", "move", "--to", "kept-0=1", "--yes", code=errors.FAILED).err
    assert "min.insync.replicas" in few
    for wrong in ("kept=1", "kept-0", "kept-0=", "kept-0=x", "kept-0=1,1"):
        run(cluster, "partitions", "move", "--to", wrong, "--yes", code=errors.USAGE)
    path.write_text("[]")
    run(cluster, "partitions", "move", "--plan", path, "--yes", code=errors.USAGE)
    run(cluster, "partitions", "move", "--plan", tmp_path / "missing.json", code=errors.USAGE)
    run(cluster, "partitions", "move", code=errors.USAGE)
    run(cluster, "partitions", "plan", "--without", 77, code=errors.NOT_FOUND)
    run(cluster, "partitions", "plan", "--without", "x", code=errors.USAGE)
    run(cluster, "partitions", "plan", "--topic", "(", code=errors.USAGE)
    run(cluster, "partitions", "cancel", code=errors.USAGE)
    run(cluster, "partitions", "elect", "--partition", "kept", code=errors.USAGE)
    assert partitions(cluster, "kept") == before


def test_leaders_return_when_they_are_asked_for(cluster: ProcessCluster) -> None:
    create(cluster, "led", "4:1,1:4")
    cluster[4].stop()
    eventually(lambda: partitions(cluster, "led")[0]["leader"] == 1, "another leads")
    cluster[4].start()
    eventually(lambda: sorted(partitions(cluster, "led")[0]["isr"]) == [1, 4], "it is in sync again")
    assert partitions(cluster, "led")[0]["leader"] == 1
    assert "led-0 has a new leader" in run(cluster, "partitions", "elect", "--partition", "led-0").out
    assert partitions(cluster, "led")[0]["leader"] == 4
    assert "No leader has changed" in run(cluster, "partitions", "elect", "--partition", "led-0").out
    unknown = run(cluster, "partitions", "elect", "--partition", "led-7", code=errors.FAILED)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in unknown.err


def test_a_drained_broker_leads_nothing_and_stops_when_it_is_asked_to(cluster: ProcessCluster) -> None:
    create(cluster, "drained", "4:1,1:4,4:2")
    written = write(cluster, "drained", 0, 60)
    run(cluster, "drain", 4, "--until", "15m")
    assert all(each["leader"] != 4 and 4 in each["isr"] + [4] for each in partitions(cluster, "drained").values())
    written += write(cluster, "drained", 60, 60)
    run(cluster, "partitions", "elect", "--partition", "drained-0", code=errors.FAILED)
    planned = run(cluster, "partitions", "plan", "--topic", "drained", "--json").json["partitions"]
    assert all((4 in entry["replicas"]) == (entry["partition"] in (0, 1, 2)) for entry in planned)
    run(cluster, "drain", 4, "--end")
    run(cluster, "partitions", "elect", "--all")
    assert partitions(cluster, "drained")[0]["leader"] == 4
    process = cluster[4].process
    assert process is not None
    run(cluster, "drain", 4, "--stop")
    assert process.wait(timeout=120) == 0
    written += write(cluster, "drained", 120, 60)
    cluster[4].process = None
    cluster[4].start()
    eventually(lambda: 4 in partitions(cluster, "drained")[0]["isr"], "it is in sync again")
    run(cluster, "partitions", "elect", "--partition", "drained-0")
    assert partitions(cluster, "drained")[0]["leader"] == 4, "a broker that comes back is not drained"
    assert_values(cluster, "drained", 3, written)


def test_a_notice_by_signal_drains(cluster: ProcessCluster) -> None:
    create(cluster, "noticed", "4:1")
    os.kill(cluster[4].pid, signal.SIGUSR1)
    eventually(lambda: partitions(cluster, "noticed")[0]["leader"] == 1, "others lead")
    assert sorted(partitions(cluster, "noticed")[0]["isr"]) == [1, 4]
    run(cluster, "drain", 4, "--end")


def test_a_drain_says_what_it_would_break(cluster: ProcessCluster) -> None:
    create(cluster, "alone", "4")
    create(cluster, "pair", "4:1", "min.insync.replicas=2")
    reported = run(cluster, "drain", 4, code=errors.FAILED).err
    assert (
        "alone-0 has no other replica in sync" in reported
        and "pair-0 has fewer in sync than min.insync.replicas=2" in reported
    )
    assert partitions(cluster, "pair")[0]["leader"] == 4, "nothing was done"
    done = run(cluster, "drain", 4, "--force", "--json").json
    assert (done["draining"], done["leads"], len(done["warnings"])) == (True, 1, 2)
    assert partitions(cluster, "pair")[0]["leader"] == 1 and partitions(cluster, "alone")[0]["leader"] == 4
    run(cluster, "drain", 4, "--end", "--json")
    run(cluster, "drain", 77, code=errors.NOT_FOUND)
    run(cluster, "drain", 4, "--until", "yesterday", code=errors.USAGE)
    run(cluster, "drain", 4, "--until", "2001-01-01T00:00", code=errors.USAGE)
    run(cluster, "drain", 4, "--end", "--stop", code=errors.USAGE)
    for topic in ("alone", "pair"):
        run(cluster, "topics", "delete", "--topic", topic)


def test_a_drain_sums_up_what_it_would_break_by_topic(cluster: ProcessCluster) -> None:
    create(cluster, "many", "4,4,4,1,4")
    create(cluster, "pairs", "4:1,1:2,1:4", "min.insync.replicas=2")
    try:
        reported = run(cluster, "drain", 4, code=errors.FAILED).err
        assert reported.splitlines()[1:] == [
            "  many: 4 partitions (0-2, 4) have no other replica in sync: clients cannot read or write them",
            "  pairs: 2 partitions (0, 2) have fewer in sync than min.insync.replicas=2: acks=all is refused",
        ]
    finally:
        for topic in ("many", "pairs"):
            run(cluster, "topics", "delete", topic)


def test_a_plan_that_moves_nothing_is_done(cluster: ProcessCluster, tmp_path: Path) -> None:
    create(cluster, "even", "1:2,2:3,3:4,4:1")
    plan = tmp_path / "plan.json"
    assert "evenly" in run(cluster, "partitions", "plan", "--topic", "even", "--out", plan).out
    assert "Nothing to do" in run(cluster, "partitions", "move", "--plan", plan).out
    assert "Nothing to do" in run(cluster, "partitions", "status", "--plan", plan).out
    assert run(cluster, "partitions", "move", "--plan", plan, "--json").json == {"version": 1, "partitions": []}
    assert run(cluster, "partitions", "status", "--plan", plan, "--json").json == []
    assert "Nothing moves" in run(cluster, "partitions", "cancel", "--plan", plan).out
    assert "Nothing to do" in run(cluster, "partitions", "move", "--to", "even-0=1,2").out


def test_a_move_ends_with_first_replicas_that_lead_or_says_how(cluster: ProcessCluster) -> None:
    create(cluster, "ends", "1:2,1:2")
    reported = run(cluster, "partitions", "move", "--to", "ends-0=3,1", "--yes", "--wait").err
    assert "The first replica leads now: ends 0." in reported, reported
    eventually(lambda: partitions(cluster, "ends")[0]["leader"] == 3, "the first replica leads")
    reported = run(cluster, "partitions", "move", "--to", "ends-1=3,1", "--yes").err
    assert "`odradek partitions elect --all`" in reported

    def moved() -> bool:
        ends = partitions(cluster, "ends")
        return bool(ends[1]["replicas"] == [3, 1] and ends[1]["isr"] != [1])

    eventually(moved, "the other has moved")
    assert partitions(cluster, "ends")[1]["leader"] == 1
    said = run(cluster, "partitions", "status", "--partition", "ends-1").err
    assert "not led by the first replica: ends 1." in said and "elect --all" in said
    run(cluster, "partitions", "elect", "--partition", "ends-1")
    eventually(lambda: not run(cluster, "partitions", "status", "--partition", "ends-1").err, "it leads")


def test_replicas_out_of_sync_are_listed_with_the_reason(cluster: ProcessCluster) -> None:
    """A killed broker is fenced; a paused one is silent; one that came back catches up."""
    eventually(lambda: run(cluster, "partitions", "lagging", "--json").json == [], "those before it are in sync again")
    create(cluster, "behind", "1:4,2:4", "min.insync.replicas=1")
    write(cluster, "behind", 0, 20)
    cluster[4].pause()
    try:
        eventually(lambda: len(run(cluster, "partitions", "lagging", "--json").json) >= 2, "4 falls out")
        rows = run(cluster, "partitions", "lagging", "--json").json
        assert {row["broker"] for row in rows} == {4}
        assert {row["why"] for row in rows} <= {"silent", "fenced"}
    finally:
        cluster[4].resume()
    eventually(lambda: run(cluster, "partitions", "lagging", "--json").json == [], "4 is in sync again")
    cluster[4].kill()
    eventually(
        lambda: {row["why"] for row in run(cluster, "partitions", "lagging", "--json").json} == {"fenced"}, "fenced"
    )
    shown = run(cluster, "partitions", "lagging")
    assert "behind" in shown.out and "odradek_follower_out_of_sync_seconds" in shown.err
    cluster[4].start()
    eventually(lambda: "All replicas are in sync" in run(cluster, "partitions", "lagging").out, "4 is in sync again")
