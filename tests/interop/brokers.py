"""The broker that the suites run against: ours, or Apache Kafka to see what the bar is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka
from tests.support.nodes.node import Node

AGAINST_KAFKA = os.environ.get("INTEROP_AGAINST") == "kafka"

# The settings that the suites of librdkafka need, as in its own scripts, for one node.
LIBRDKAFKA_SETTINGS: Mapping[str, object] = {
    "num.partitions": 4,
    "auto.create.topics.enable": "true",
    "group.min.session.timeout.ms": 1000,
    "share.record.lock.duration.ms": 1000,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 1000,
}


def start_broker(folder: Path, overrides: Mapping[str, object] | None = None) -> Node | ApacheKafka:
    """A running broker over a folder; the caller stops it."""
    if AGAINST_KAFKA:
        require_kafka()
        kafka = ApacheKafka(folder, overrides, heap="768m")
        kafka.settings["controller.quorum.voters"] = f"{kafka.settings['node.id']}@127.0.0.1:{kafka.controller_port}"
        return kafka.start()
    node = Node(folder, dict(overrides or {}))
    node.overrides["advertised.listeners"] = f"PLAINTEXT://{node.bootstrap}"  # kafka-python looks whether it is set
    if "node.id" in node.overrides:
        node.overrides["controller.quorum.voters"] = f"{node.overrides['node.id']}@127.0.0.1:{node.controller_port}"
    return node.start()
