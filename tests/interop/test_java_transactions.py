"""Kafka's Java client copies exactly once while everything is killed; Kafka's tools look at transactions and files."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop.brokers import start_broker
from tests.support.apache_kafka import ApacheKafka, java_command, require_kafka, run_tool
from tests.support.clients import create_topic, produce_all
from tests.support.exactly_once import committed_values, fill_source
from tests.support.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
TOOLS = "org.apache.kafka.tools"
PARTITIONS = 2
RECORDS = 6_000
COPIERS = 2
KILLS = 4


@pytest.fixture(autouse=True)
def kafka() -> None:
    require_kafka()


def start_copier(folder: Path, bootstrap: str, number: int) -> subprocess.Popen[bytes]:
    arguments = [bootstrap, "source", "copy", f"copier-{number}"]
    with (folder / f"copier-{number}.log").open("ab") as out:
        command = java_command(str(HERE / "java" / "CopyExactlyOnce.java"), arguments)
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def test_two_copiers_and_a_broker_that_are_killed_copy_exactly_once(tmp_path: Path) -> None:
    with start_broker(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, "source", PARTITIONS)
        create_topic(broker.bootstrap, "copy", PARTITIONS)
        expected = fill_source(broker.bootstrap, "source", PARTITIONS, RECORDS)
        copiers = [start_copier(tmp_path, broker.bootstrap, number) for number in range(COPIERS)]
        try:
            for kill in range(KILLS):
                time.sleep(4)
                if kill % 2:
                    broker.kill()
                    broker.start()
                else:
                    victim = kill // 2 % COPIERS
                    copiers[victim].kill()
                    copiers[victim].wait()
                    copiers[victim] = start_copier(tmp_path, broker.bootstrap, victim)
            deadline = time.monotonic() + 120
            while (found := committed_values(broker.bootstrap, "copy", PARTITIONS)) != expected:
                assert time.monotonic() < deadline, {
                    number: (len(found[number]), len(expected[number])) for number in range(PARTITIONS)
                }
                for number in range(PARTITIONS):
                    assert found[number] == expected[number][: len(found[number])], f"partition {number}"
                time.sleep(1)
        finally:
            for copier in copiers:
                copier.kill()
                copier.wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node | ApacheKafka]:
    require_kafka()
    with start_broker(tmp_path_factory.mktemp("broker")) as running:
        create_topic(running.bootstrap, "t", 1)
        yield running


def transactions(broker: Node | ApacheKafka, *arguments: object) -> str:
    tool = [*("--bootstrap-server", broker.bootstrap), *arguments]
    return run_tool(f"{TOOLS}.TransactionsCommand", tool).stdout


def test_kafka_transactions_lists_describes_and_aborts(broker: Node | ApacheKafka) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "seen"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"open")
    assert producer.flush(30) == 0
    listed = transactions(broker, "list")
    assert re.search(r"seen\s+\d\s+\d+\s+Ongoing", listed), listed
    described = transactions(broker, "describe", "--transactional-id", "seen")
    assert "Ongoing" in described and "t-0" in described
    producers = transactions(broker, "describe-producers", "--topic", "t", "--partition", 0)
    start = producers.splitlines()[1].split()[-1]
    assert transactions(broker, "find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0).count("\n") <= 1
    transactions(broker, "abort", "--topic", "t", "--partition", 0, "--start-offset", start)
    after = transactions(broker, "describe-producers", "--topic", "t", "--partition", 0)
    assert after.splitlines()[1].split()[-1] == "None", after
    assert committed_values(broker.bootstrap, "t", 1) == {0: []}


def test_kafka_reads_the_transaction_topic_and_the_markers(tmp_path: Path) -> None:
    with Node(tmp_path / "node") as node:
        create_topic(node.bootstrap, "t", 1)
        producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "dumped"})
        producer.init_transactions(30)
        for commit in (True, False):
            producer.begin_transaction()
            producer.produce("t", b"v")
            assert producer.flush(30) == 0
            producer.commit_transaction(30) if commit else producer.abort_transaction(30)
        produce_all(node.bootstrap, "t", [(None, b"after")])
        data_dir = node.data_dir
        node.stop()
    state = "".join(
        dump(file, "--transaction-log-decoder")
        for file in sorted(data_dir.glob("__transaction_state-*/00000000000000000000.log"))
    )
    assert re.search(r"transactionalId.*dumped", state), state
    for name in ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"):
        assert name in state or str(STATES[name]) in state, (name, state)
    markers = dump(data_dir / "t-0" / "00000000000000000000.log")
    assert re.search(r"endTxnMarker: COMMIT coordinatorEpoch: \d+", markers), markers
    assert re.search(r"endTxnMarker: ABORT coordinatorEpoch: \d+", markers), markers
    index = dump(data_dir / "t-0" / "00000000000000000000.txnindex")
    assert re.search(r"producerId: \d+ firstOffset: 2 lastOffset: 3", index), index


STATES = {"Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5}


def dump(file: Path, *options: str) -> str:
    return run_tool("org.apache.kafka.tools.DumpLogSegments", [*options, "--print-data-log", "--files", file]).stdout
