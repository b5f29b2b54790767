"""The settings file that Kafka's own distribution ships starts a node, with only paths and ports changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.clients.confluent import produce_all, read_all
from tests.support.nodes.node import Node


def shipped_settings(node: Node) -> str:
    """The keys and values that Kafka 4.x ships in config/server.properties."""
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.bootstrap.servers=localhost:{node.controller_port}",
        f"listeners=PLAINTEXT://:{node.port},CONTROLLER://:{node.controller_port}",
        "inter.broker.listener.name=PLAINTEXT",
        f"advertised.listeners=PLAINTEXT://localhost:{node.port},CONTROLLER://localhost:{node.controller_port}",
        "controller.listener.names=CONTROLLER",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "num.network.threads=3",
        "num.io.threads=8",
        "socket.send.buffer.bytes=102400",
        "socket.receive.buffer.bytes=102400",
        "socket.request.max.bytes=104857600",
        f"log.dirs={node.data_dir}",
        "num.partitions=1",
        "num.recovery.threads.per.data.dir=1",
        "offsets.topic.replication.factor=1",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "log.retention.hours=168",
        "log.segment.bytes=1073741824",
        "log.retention.check.interval.ms=300000",
    ]
    return "\n".join(lines) + "\n"


def odradek(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_own_file_formats_and_starts_a_node(tmp_path: Path) -> None:
    node = Node(tmp_path / "node")
    config = tmp_path / "server.properties"
    config.write_text(shipped_settings(node))
    cluster_id = odradek("storage", "random-uuid", cwd=tmp_path).strip()
    odradek("storage", "format", "--standalone", "-t", cluster_id, "-c", str(config), cwd=tmp_path)
    assert f"cluster.id={cluster_id}" in (node.data_dir / "meta.properties").read_text()
    assert (node.data_dir / "bootstrap.checkpoint").exists()

    output = tmp_path / "node.log"
    with output.open("wb") as printed:
        node.process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "broker", "--config", str(config)],
            stdout=printed,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ},
        )
    node.output = output
    with node:
        node.await_port()
        produce_all(f"localhost:{node.port}", "shipped", [(b"k", b"v")])
        assert [message.value() for message in read_all(f"localhost:{node.port}", "shipped")] == [b"v"]
