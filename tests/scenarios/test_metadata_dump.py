"""Apache Kafka reads our metadata log and snapshots, and goes on with them; we go on with its."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from tests.support.models.controller_harness import wanted
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka, run_tool
from tests.support.nodes.quorum_node import QuorumNode

DUMPER = "org.apache.kafka.tools.DumpLogSegments"


def dump(path: Path) -> str:
    arguments = ["--cluster-metadata-decoder", "--deep-iteration", "--print-data-log", "--files", path]
    return run_tool(DUMPER, arguments).stdout


def payload_types(dumped: str) -> list[str]:
    return [json.loads(found)["type"] for found in re.findall(r"payload: (\{.*\})$", dumped, re.MULTILINE)]


@pytest.mark.java
async def test_kafka_dumps_our_metadata_log_and_snapshot(tmp_path: Path) -> None:
    require_kafka()
    node = await QuorumNode(tmp_path).start()
    await node.add_broker(1)
    await node.service.create_topics(CreateTopicsRequest(topics=[wanted("a", 3)]))
    assert await node.set_config(2, "a", "retention.ms", "7") == 0
    snapshot_id = await node.driver.write_snapshot()
    image = node.publisher.image
    await node.stop()

    dumped = dump(node.directory / f"{0:020d}.log")
    assert "isvalid: false" not in dumped and "LeaderChange" in dumped
    types = payload_types(dumped)
    assert types.count("PARTITION_RECORD") == 3 and types.count("FEATURE_LEVEL_RECORD") == 4
    assert {"REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD", "CONFIG_RECORD"} <= set(types)

    dumped = dump(node.directory / snapshot_id.file_name)
    assert "SnapshotHeader" in dumped and "SnapshotFooter" in dumped
    assert len(payload_types(dumped)) == len(list(image.records()))


@pytest.mark.java
@pytest.mark.slow  # test_one_directory: each starts with what the other has left, snapshots apart
async def test_we_go_on_with_the_metadata_log_of_kafka_and_kafka_with_ours(tmp_path: Path) -> None:
    require_kafka()
    kafka = ApacheKafka(tmp_path / "kafka")
    bootstrap = ["--bootstrap-server", kafka.bootstrap]
    with kafka:
        run_tool(
            "org.apache.kafka.tools.TopicCommand", [*bootstrap, "--create", "--topic", "theirs", "--partitions", 3]
        )
    text = (kafka.data_dir / "meta.properties").read_text()
    found = re.search(r"^cluster.id=(.*)$", text, re.MULTILINE)
    assert found is not None

    node = await QuorumNode(kafka.data_dir, cluster_id=found[1]).start()
    topic = node.publisher.image.topic("theirs")
    assert topic is not None and sorted(topic.partitions) == [0, 1, 2]
    assert node.publisher.image.features["metadata.version"] == 30 and 1 in node.publisher.image.brokers
    assert await node.set_config(2, "theirs", "retention.ms", "123456") == 0
    await node.driver.write_snapshot()
    assert await node.set_config(2, "theirs", "cleanup.policy", "compact") == 0
    epoch = node.driver.leader_epoch
    await node.stop()
    assert not node.failures

    with kafka:
        arguments = [*bootstrap, "--describe", "--entity-type", "topics", "--entity-name", "theirs"]
        described = run_tool("kafka.admin.ConfigCommand", arguments)
        assert "retention.ms=123456" in described.stdout and "cleanup.policy=compact" in described.stdout
    again = await QuorumNode(kafka.data_dir, cluster_id=found[1]).start()
    assert again.driver.leader_epoch > epoch + 1
    assert again.publisher.image.topic_config("theirs")["retention.ms"] == "123456"
    await again.stop()
