"""MirrorMaker 2 as the benchmark of links runs it: one topic, records only."""

from __future__ import annotations

from pathlib import Path

from tests.interop.mirror_maker import ONE_BROKER_EACH, MirrorMaker

TARGET = "here"
HEAP = "1g"
# The link's offsets, settings and ACLs are off as well.
_RECORDS_ONLY = {
    **ONE_BROKER_EACH,
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "sync.topic.configs.enabled": "false",
}


def mirror_maker(
    directory: Path, alias: str, source: str, target: str, topic: str, *, tasks: int, producer: dict[str, object]
) -> MirrorMaker:
    """One that mirrors one topic.

    Args:
        alias: the source's name, which prefixes the topic at the target. A new alias has no state of earlier runs.
        producer: settings of its producer, over Kafka's defaults.
    """
    settings = {"tasks.max": tasks, **_RECORDS_ONLY}
    settings |= {f"{TARGET}.producer.{name}": value for name, value in producer.items()}
    clusters = {alias: source, TARGET: target}
    return MirrorMaker(directory, clusters, {(alias, TARGET): topic}, settings, heap=HEAP)
