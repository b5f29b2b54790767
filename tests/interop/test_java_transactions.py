"""Kafka's Java client copies exactly once while everything is killed; Kafka's tools look at transactions and files."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.interop.brokers import start_broker
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.models.exactly_once import COPIER, committed_values, copy_cluster, fill_source
from tests.support.nodes.apache_kafka import ApacheKafka, java_command, require_kafka, run_tool
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
TOOLS = "org.apache.kafka.tools"
PARTITIONS = 2
RECORDS = 6_000
COPIERS = 2
KILLS = 4
# Kafka's tools take seconds each, and the transactions must still be open then.
PATIENT = {"transaction.timeout.ms": 600_000}


@pytest.fixture(autouse=True)
def kafka() -> None:
    require_kafka()


def start_copier(folder: Path, bootstrap: str, number: int, protocol: str) -> subprocess.Popen[bytes]:
    arguments = [bootstrap, "source", "copy", COPIER % number, protocol]
    with (folder / f"copier-{number}.log").open("ab") as out:
        command = java_command(str(HERE / "java" / "CopyExactlyOnce.java"), arguments)
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def copy_under_kills(
    bootstrap: str, folder: Path, kill_a_node: Callable[[], None], *, protocol: str = "classic", kills: int = KILLS
) -> None:
    """Copy `source` into `copy`, which are there; copiers and nodes are killed in turn."""
    expected = fill_source(bootstrap, "source", PARTITIONS, RECORDS)
    copiers = [start_copier(folder, bootstrap, number, protocol) for number in range(COPIERS)]
    try:
        for kill in range(kills):
            time.sleep(4)
            if kill % 2:
                kill_a_node()
            else:
                victim = kill // 2 % COPIERS
                copiers[victim].kill()
                copiers[victim].wait()
                copiers[victim] = start_copier(folder, bootstrap, victim, protocol)
        deadline = time.monotonic() + 300
        while (found := committed_values(bootstrap, "copy", PARTITIONS)) != expected:
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
    refused = [line for line in said(folder) if "INVALID_TXN_STATE" in line or "InvalidTxnState" in line]
    assert not refused, "a transaction that followed on another was refused:\n" + refused[0]


def said(folder: Path) -> list[str]:
    """All lines that the copiers printed."""
    return [line for file in folder.glob("copier-*.log") for line in file.read_text(errors="replace").splitlines()]


@pytest.mark.slow
def test_two_copiers_and_a_broker_that_are_killed_copy_exactly_once(tmp_path: Path) -> None:
    with start_broker(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, "source", PARTITIONS)
        create_topic(broker.bootstrap, "copy", PARTITIONS)

        def kill_the_broker() -> None:
            broker.kill()
            broker.start()

        copy_under_kills(broker.bootstrap, tmp_path, kill_the_broker)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_copiers_copy_exactly_once_over_three_brokers(tmp_path: Path, protocol: str) -> None:
    """Markers and the next transaction's records go to other brokers, over other connections: either may come first."""
    with copy_cluster(tmp_path / "cluster", PARTITIONS) as cluster:
        copy_under_kills(cluster.bootstrap, tmp_path, cluster.kill_next, protocol=protocol, kills=6)


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
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "seen"} | PATIENT)
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


@pytest.mark.slow
def test_kafka_transactions_filters_and_terminates_by_force(broker: Node | ApacheKafka) -> None:
    create_topic(broker.bootstrap, "forced", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "forced-1"} | PATIENT)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("forced", b"open")
    assert producer.flush(30) == 0
    assert "forced-1" in transactions(broker, "list", "--transactional-id-pattern", "forced-.*")
    assert "forced-1" not in transactions(broker, "list", "--transactional-id-pattern", "forced")
    assert "forced-1" in transactions(broker, "list", "--duration-filter", 1)
    assert "forced-1" not in transactions(broker, "list", "--duration-filter", 10**9)
    of_one = ("--transactional-id", "forced-1")
    transactions(broker, "forceTerminateTransaction", "--transactionalId", "forced-1")
    deadline = time.monotonic() + 120
    while not re.search(r"CompleteAbort|Empty", described := transactions(broker, "describe", *of_one)):
        assert time.monotonic() < deadline, described
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert committed_values(broker.bootstrap, "forced", 1) == {0: []}


@pytest.mark.slow
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
        # An abort is answered before its markers are written; the next transaction under the id waits for them.
        Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "dumped"}).init_transactions(60)
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
