"""`odradek perf` against a node: its counts are those of the records, and it sees a stall."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest
from confluent_kafka import Producer

from odradek.cli import errors
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, read_all
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually


def test_sent_records_are_stored_and_read(node: Node, tmp_path: Path) -> None:
    create_topic(node.bootstrap, "sent", 3)
    table, picture = tmp_path / "run.csv", tmp_path / "run.svg"
    options = ("--records", 1_000, "--size", "100-300", "--keys", 7, "--threads", 3, "--compression-codec", "lz4")
    files = ("--csv", table, "--svg", picture)
    ran = odradek(node.bootstrap, "perf", "produce", "sent", *options, *files)
    assert ran.out.startswith("1000 records sent, ") and "99.9th." in ran.out
    assert "due-to-acknowledged" in ran.out and "records/sec" in ran.err
    messages = read_all(node.bootstrap, "sent", 3)
    assert len(messages) == 1_000 and {message.key() for message in messages} == {b"%d" % key for key in range(7)}
    assert {len(message.value() or b"") for message in messages} <= set(range(100, 301))
    with table.open(newline="") as file:
        assert sum(int(row["acknowledged"]) for row in csv.DictReader(file)) == 1_000
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    ran = odradek(node.bootstrap, "perf", "consume", "sent", "--threads", 5)
    heading, cells = ran.out.splitlines()[:2]
    assert dict(zip(heading.split(", "), cells.split(", "), strict=True))["data.consumed.in.nMsg"] == "1000"
    assert "5 threads for 3 partitions" in ran.err
    found = odradek(node.bootstrap, "perf", "consume", "sent", "--json").json
    assert found["read"] == 1_000
    groups = odradek(node.bootstrap, "groups", "list", "--json").json
    assert "odradek-perf" not in {group["group"] for group in groups}


def test_a_topic_that_ends_with_the_marker_of_a_transaction_is_read(node: Node) -> None:
    create_topic(node.bootstrap, "ended", 2)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "ended"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("ended", b"v", partition=number % 2)
    producer.commit_transaction(PATIENCE_S)
    assert odradek(node.bootstrap, "perf", "consume", "ended", "--json").json["read"] == 10


def test_the_latency_from_due_to_read_is_measured(node: Node) -> None:
    create_topic(node.bootstrap, "timed", 2)
    odradek(node.bootstrap, "perf", "produce", "timed", "--records", 50, "--json")
    found = odradek(node.bootstrap, "perf", "latency", "timed", "--records", 200, "--rate", 500, "--json").json
    # Earlier records of the topic do not count.
    assert (found["sent"], found["acknowledged"], found["read"], found["lost"]) == (200, 200, 200, 0)
    timed = found["latency_ms"]
    assert {way: shown["count"] for way, shown in timed.items()} == {
        "due_to_sent": 200,
        "due_to_acknowledged": 200,
        "due_to_read": 200,
    }
    for shown in timed.values():
        assert 0 <= shown["p50"] <= shown["p99"] <= shown["p99.9"] <= shown["max"]


def test_a_stall_is_seen_by_every_record_that_waits(own_node: Node) -> None:
    """A client that sends the next record after the last answer would see one slow record; here all of them are."""
    create_topic(own_node.bootstrap, "stalled")
    stalled, done = threading.Event(), threading.Event()

    def stall() -> None:
        # The broker is paused for a second and a half, once the first records are on the disk.
        log = own_node.data_dir / "stalled-0" / f"{0:020}.log"
        eventually(lambda: log.stat().st_size > 0, "records are written")
        own_node.pause()
        stalled.set()
        done.wait(1.5)
        own_node.resume()

    thread = threading.Thread(target=stall)
    thread.start()
    try:
        options = ("--records", 2_000, "--rate", 400, "--json")
        found = odradek(own_node.bootstrap, "perf", "latency", "stalled", *options).json
    finally:
        done.set()
        thread.join()
    assert stalled.is_set() and (found["acknowledged"], found["lost"]) == (2_000, 0)
    timed = found["latency_ms"]["due_to_acknowledged"]
    # 600 records were due in the pause, evenly: 400 of them waited for half a second or longer.
    assert timed["max"] >= 1_300 and timed["p95"] >= 500


def test_a_long_run_says_that_nothing_is_lost(own_node: Node) -> None:
    create_topic(own_node.bootstrap, "soaked", 2)

    def restart() -> None:
        logs = [own_node.data_dir / f"soaked-{number}" / f"{0:020}.log" for number in range(2)]
        eventually(lambda: any(log.stat().st_size > 0 for log in logs), "records are written")
        own_node.kill()
        own_node.start()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        options = ("--minutes", 0.05, "--rate", 200, "--threads", 2, "--interval", 1, "--json")
        found = odradek(own_node.bootstrap, "perf", "soak", "soaked", *options).json
    finally:
        thread.join()
    assert (found["sent"], found["acknowledged"], found["lost"], found["failed"]) == (600, 600, 0, 0)


def test_an_interrupted_run_reports_its_results(node: Node) -> None:
    create_topic(node.bootstrap, "interrupted")
    command = [sys.executable, "-m", "odradek", "perf", "latency", "interrupted", "-b", node.bootstrap]
    with subprocess.Popen(
        [*command, "--seconds", "600", "--interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Processes of tests that run in the background ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stderr is not None
            while "ms 99th to read" not in (line := process.stderr.readline()):
                assert line, "it ended"
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == errors.INTERRUPTED and "due-to-read" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["produce", "absent"], errors.NOT_FOUND, "`odradek topics create absent`"),
        (["latency", "absent"], errors.NOT_FOUND, "topic absent does not exist"),
        (["consume", "absent"], errors.NOT_FOUND, "topic absent does not exist"),
        (["produce", "absent", "--seconds", "0"], errors.USAGE, "never ends"),
        (["produce", "absent", "--size", "big"], errors.USAGE, "give a number of bytes"),
        (["produce", "sized", "--csv", "/dev/null/run.csv"], errors.USAGE, "/dev/null/run.csv cannot be written"),
        (["consume", "sized", "--svg", "/dev/null/run.svg"], errors.USAGE, "/dev/null/run.svg cannot be written"),
        (["latency", "sized", "--svg", "/dev"], errors.USAGE, "/dev cannot be written: Is a directory"),
        (["produce", "sized", "--command-property", "nonsense=1"], errors.BAD_CONFIG, "nonsense"),
    ],
)
def test_runs_that_cannot_be_measured_are_errors(node: Node, arguments: list[str], code: int, said: str) -> None:
    if "sized" in arguments:
        odradek(node.bootstrap, "topics", "create", "sized", "--if-not-exists")
    assert said in odradek(node.bootstrap, "perf", *arguments, code=code).err


def test_records_that_are_refused_are_counted(node: Node) -> None:
    create_topic(node.bootstrap, "small", max_message_bytes=500)
    ran = odradek(node.bootstrap, "perf", "produce", "small", "--records", 3, "--json", code=errors.FAILED)
    assert (ran.json["acknowledged"], ran.json["failed"]) == (0, 3)
    assert "3 records were not acknowledged: " in ran.err


@pytest.mark.slow
@pytest.mark.java
def test_perf_measures_apache_kafka_as_well(tmp_path: Path) -> None:
    require_kafka()
    with ApacheKafka(tmp_path / "kafka") as kafka:
        create_topic(kafka.bootstrap, "theirs", 2)
        found = odradek(kafka.bootstrap, "perf", "latency", "theirs", "--records", 200, "--rate", 500, "--json").json
        assert (found["acknowledged"], found["read"], found["lost"]) == (200, 200, 0)
        assert odradek(kafka.bootstrap, "perf", "consume", "theirs", "--json").json["read"] == 200
