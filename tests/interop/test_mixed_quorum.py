"""Quorums of Odradek's controllers and Apache Kafka's together, and Kafka's tool for quorums on ours."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.clients.cli import odradek, odradek_process
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka, run_tool
from tests.support.nodes.node import free_port
from tests.support.nodes.quorum_processes import CLUSTER_ID, QuorumProcess, described, leader_of, write

TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


class KafkaNode(QuorumProcess):
    """A controller or broker of Apache Kafka that is spoken to as one of ours."""

    def __init__(self, root: Path, node_id: int, voters: str, port: int, roles: str = "controller") -> None:
        super().__init__(root, node_id, roles, {"controller.quorum.voters": voters}, port)
        listener = "CONTROLLER" if roles == "controller" else "PLAINTEXT"
        self.kafka = ApacheKafka(
            root / "kafka",
            {
                "process.roles": roles,
                "node.id": node_id,
                "controller.quorum.voters": voters,
                "listeners": f"{listener}://127.0.0.1:{port}",
                "advertised.listeners": f"{listener}://127.0.0.1:{port}",
            },
            heap="256m",
            port=port,
        )

    def format(self, *options: str) -> KafkaNode:
        kafka = self.kafka
        kafka.directory.mkdir(parents=True)
        kafka.properties.write_text("".join(f"{key}={value}\n" for key, value in kafka.settings.items()))
        run_tool("kafka.tools.StorageTool", ["format", "-t", CLUSTER_ID, "-c", kafka.properties, *options])
        return self

    def launch(self) -> None:
        self.kafka.launch()
        self.process = self.kafka.process

    def await_port(self) -> None:
        self.kafka.await_port()

    def kill(self) -> int:
        self.process = None
        return self.kafka.kill()

    def log_text(self) -> str:
        return self.kafka.log_text()


def errors_in(kafka: KafkaNode) -> list[str]:
    """The lines that a node of Apache Kafka wrote about errors.

    A controller that was elected and is not active yet refuses requests, its own registration among them, which is sent
    again: that is an ERROR in its log too, with the exception in the next line.
    """
    lines = kafka.log_text().splitlines()
    return [
        line
        for line, reason in pairwise([*lines, ""])
        if (" ERROR " in line or " FATAL " in line) and "NotControllerException" not in reason
    ]


async def all_caught_up(nodes: list[QuorumProcess]) -> QuorumProcess:
    """Return the leader once every voter has all that it has."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        found = await described(nodes)
        if found is not None and {voter.log_end_offset for voter in found[1].current_voters} == {
            found[1].high_watermark
        }:
            return found[0]
        await asyncio.sleep(0.1)
    raise AssertionError(f"{found}\n" + "\n".join(node.log_text()[-1500:] for node in nodes))


async def test_apache_kafka_and_odradek_vote_in_one_quorum(tmp_path: Path) -> None:
    require_kafka()
    ports = [free_port() for _ in range(3)]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, start=1))
    kafka = KafkaNode(tmp_path, 1, voters, ports[0]).format()
    ours = [
        QuorumProcess(tmp_path, number, "controller", {"controller.quorum.voters": voters}, ports[number - 1]).format()
        for number in (2, 3)
    ]
    nodes: list[QuorumProcess] = [*ours, kafka]
    try:
        for node in ours:
            node.start()
        await leader_of(ours)
        await write(ours, 50_000)
        kafka.launch()  # a follower of ours, unless a busy machine has had another election by then
        leader = await all_caught_up(nodes)
        leader.kill()  # one of the others leads with the vote of the third
        await write(nodes, 50_001)
        leader.launch()
        if await all_caught_up(nodes) is kafka:
            kafka.kill()
            await write(ours, 50_002)
            kafka.launch()
            await all_caught_up(nodes)
        assert not any("Traceback" in node.log_text() for node in ours)
        assert errors_in(kafka) == []
    finally:
        for node in nodes:
            if node.process is not None:
                node.kill()


@pytest.mark.slow  # test_java_controllers has its short forms
async def test_kafkas_tool_describes_and_changes_our_quorum(tmp_path: Path) -> None:
    require_kafka()
    first_port = free_port()
    bootstrap: dict[str, object] = {
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{first_port}",
        "controller.quorum.fetch.timeout.ms": 60_000,  # the first one leads for as long as the test lasts
    }
    first = QuorumProcess(tmp_path, 1, "controller", bootstrap, first_port).format("--standalone")
    second = QuorumProcess(tmp_path, 2, "controller", bootstrap).format("--no-initial-controllers")
    where = ["--bootstrap-controller", f"127.0.0.1:{first_port}"]
    try:
        first.start()
        second.start()
        await write([first], 50_000)
        done = run_tool(TOOL, [*where, "--command-config", second.config, "add-controller"])
        assert "Added controller 2" in done.stdout
        status = run_tool(TOOL, [*where, "describe", "--status"]).stdout
        assert '"id": 1' in status and '"id": 2' in status and status.split()[2:4] == ["LeaderId:", "1"]
        replication = run_tool(TOOL, [*where, "describe", "--replication"]).stdout
        assert "Leader" in replication and "Follower" in replication
        directory = next(
            line.partition("=")[2]
            for line in (second.data_dir / "meta.properties").read_text().splitlines()
            if line.startswith("directory.id=")
        )
        removed = run_tool(
            TOOL, [*where, "remove-controller", "--controller-id", 2, "--controller-directory-id", directory]
        )
        assert "KRaft controller 2 with directory id" in removed.stdout
        found = await described([first])
        assert found is not None and [voter.replica_id for voter in found[1].current_voters] == [1]
        assert 2 in [replica.replica_id for replica in found[1].observers]
    finally:
        for node in (first, second):
            if node.process is not None:
                node.stop()


async def produce_and_consume(bootstrap: str) -> None:
    """Create a topic, write a record to it and read it."""
    await asyncio.to_thread(odradek, bootstrap, "topics", "create", "--topic", "t", "--partitions", "3")
    sent = await asyncio.to_thread(odradek_process, bootstrap, "produce", "--topic", "t", stdin=b"one record\n")
    assert sent.returncode == 0
    read = await asyncio.to_thread(
        odradek_process, bootstrap, "consume", "--topic", "t", "--from-beginning", "--max-messages", "1"
    )
    assert b"one record" in read.stdout


@pytest.mark.slow
async def test_our_broker_under_a_controller_of_apache_kafka(tmp_path: Path) -> None:
    require_kafka()
    port = free_port()
    voters = f"1@127.0.0.1:{port}"
    kafka = KafkaNode(tmp_path, 1, voters, port).format()
    broker = QuorumProcess(tmp_path, 7, "broker", {"controller.quorum.voters": voters}).format()
    try:
        kafka.launch()
        kafka.await_port()
        broker.start()
        await produce_and_consume(broker.bootstrap)
        assert broker.stop() == 0 and "Traceback" not in broker.log_text()
        assert errors_in(kafka) == []
    finally:
        for node in (broker, kafka):
            if node.process is not None:
                node.kill()


@pytest.mark.slow
async def test_a_broker_of_apache_kafka_under_our_controller(tmp_path: Path) -> None:
    require_kafka()
    port = free_port()
    voters = f"11@127.0.0.1:{port}"
    controller = QuorumProcess(tmp_path, 11, "controller", {"controller.quorum.voters": voters}, port).format()
    kafka = KafkaNode(tmp_path, 12, voters, free_port(), "broker").format()
    try:
        controller.start()
        kafka.launch()
        kafka.await_port()
        await produce_and_consume(kafka.bootstrap)
        assert errors_in(kafka) == []
        assert "Traceback" not in controller.log_text()
    finally:
        for node in (kafka, controller):
            if node.process is not None:
                node.kill()
