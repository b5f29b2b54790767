"""Controllers, and brokers beside them, each a process of its own with a properties file and a formatted disk."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odradek.cli.app import run
from odradek.client.connection import Connection, connect
from odradek.common.errors import ErrorCode, OdradekError
from odradek.common.real_io import RealNetwork
from odradek.protocol.messages import describe_quorum_request as quorum
from odradek.protocol.messages import incremental_alter_configs_request as configs
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse, PartitionData
from odradek.protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from tests.support.nodes.node import START_TIMEOUT_S, Node, free_port

CLUSTER_ID = "Odradek-quorum-test-id"
GROUP = 32
SETTING = "consumer.session.timeout.ms"


class QuorumProcess(Node):
    """One node by its own properties file."""

    def __init__(self, root: Path, node_id: int, roles: str, properties: dict[str, object], port: int = 0) -> None:
        super().__init__(root / f"node-{node_id}")
        self.node_id = node_id
        self.port = port or free_port()
        name = "CONTROLLER" if roles == "controller" else "PLAINTEXT"
        self.properties: dict[str, object] = {
            "node.id": node_id,
            "process.roles": roles,
            "listeners": f"{name}://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data_dir,
            **properties,
        }

    @property
    def config(self) -> Path:
        return self.directory / "node.properties"

    def format(self, *options: str) -> QuorumProcess:
        """Write the file and format the disk."""
        self.write_config()
        command = ["storage", "format", "-c", str(self.config), "-t", CLUSTER_ID, *options]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = run(command)
        assert code == 0, printed.getvalue()
        return self

    def write_config(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}\n" for key, value in self.properties.items()]
        self.config.write_text("".join(lines))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "odradek", "broker", "-c", str(self.config)]

    def wipe(self) -> None:
        """Lose the disk."""
        shutil.rmtree(self.data_dir)

    @property
    def metadata_dir(self) -> Path:
        return self.data_dir / "__cluster_metadata-0"

    async def connect(self) -> Connection:
        return await connect(RealNetwork(), "127.0.0.1", self.port, client_id="test", timeout_s=10)

    async def request(self, request: Any, response: Any) -> Any:
        connection = await self.connect()
        try:
            return await connection.request(request, response, timeout_s=10)
        finally:
            connection.close()


def static_controllers(root: Path, count: int, **properties: object) -> list[QuorumProcess]:
    """Formatted voters 1 to `count` of a static quorum."""
    ports = [free_port() for _ in range(count)]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, start=1))
    settings = {"controller.quorum.voters": voters, **properties}
    return [
        QuorumProcess(root, number, "controller", settings, port).format() for number, port in enumerate(ports, start=1)
    ]


async def described(nodes: Sequence[QuorumProcess]) -> tuple[QuorumProcess, PartitionData] | None:
    """The leader among running controllers, and its description of the quorum."""
    asked = quorum.TopicData(topic_name="__cluster_metadata", partitions=[quorum.PartitionData(partition_index=0)])
    found = []
    for node in nodes:
        if node.process is None:
            continue
        try:
            answer: DescribeQuorumResponse = await node.request(
                quorum.DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse
            )
        except OdradekError:
            continue
        if not answer.error_code and answer.topics and not answer.topics[0].partitions[0].error_code:
            found.append((answer.topics[0].partitions[0].leader_epoch, node, answer.topics[0].partitions[0]))
    if not found:
        return None
    _, node, partition = max(found, key=lambda each: each[0])
    return node, partition


async def leader_of(nodes: Sequence[QuorumProcess], *, but: QuorumProcess | None = None) -> QuorumProcess:
    """The node that leads, once one does."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        found = await described(nodes)
        if found is not None and found[0] is not but:
            return found[0]
        await asyncio.sleep(0.05)
    raise AssertionError("no leader:\n" + "\n".join(node.log_text()[-2000:] for node in nodes))


async def write(nodes: Sequence[QuorumProcess], value: int, group: str = "g") -> QuorumProcess:
    """Change one setting of a group through whichever controller is active; returns that one."""
    entry = configs.AlterableConfig(name=SETTING, config_operation=0, value=str(value))
    resource = configs.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[entry])
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        for node in nodes:
            if node.process is None:
                continue
            try:
                answer = await node.request(request, IncrementalAlterConfigsResponse)
            except OdradekError:
                continue
            if answer.responses and answer.responses[0].error_code == ErrorCode.NONE:
                return node
        await asyncio.sleep(0.05)
    raise AssertionError("no voter took it:\n" + "\n".join(node.log_text()[-2000:] for node in nodes))


def dumped(node: QuorumProcess) -> list[dict[str, Any]]:
    """All records of a stopped node's metadata log."""
    files = ",".join(map(str, sorted(node.metadata_dir.glob("*.log"))))
    command = [sys.executable, "-m", "odradek", "dump-log", "--cluster-metadata-decoder", "--files", files, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
