"""The conditions at the end of a scenario, checked from what clients saw and from the files of the nodes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.record.reader import read_batches, read_records
from odradek.testing.processes import NodeProcess, ProcessCluster
from tests.chaos.load import QUIET, Reader, Writer
from tests.support.nodes.cluster import topic_at
from tests.support.waiting import PATIENCE_S, eventually


@dataclass
class Verdict:
    """The result of a scenario.

    Attributes:
        acknowledged: the number of acknowledged records.
        longest_gap_s: the longest time between two acknowledgements that one producer got.
        whole_after_s: the time from the end of the faults until all replicas were in sync.
        problems: a line for each broken promise.
    """

    acknowledged: int
    longest_gap_s: float
    whole_after_s: float
    problems: list[str]


def admin(cluster: ProcessCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})


def leaders(cluster: ProcessCluster, topic: str) -> dict[int, int]:
    """The leader of each partition, as some broker knows it; -1 where there is none. Waits for an answer."""

    def ask() -> dict[int, int] | None:
        try:
            found = admin(cluster).list_topics(topic, timeout=3).topics[topic].partitions
        except KafkaException:
            return None
        return {number: partition.leader for number, partition in found.items()} or None

    return dict(eventually(ask, "somebody knows who leads"))


def whole(cluster: ProcessCluster, topic: str, copies: int) -> dict[int, tuple[int, int]]:
    """The leader and its epoch by partition, if all brokers agree and all replicas are in sync; else {}.

    It asks each broker, because one that was cut off may have the state before the cut for some time.
    """
    said = []
    for node in cluster.brokers:
        partitions = topic_at(node, topic).partitions
        if not partitions or any(len(each.isr_nodes) != copies for each in partitions):
            return {}
        said.append({each.partition_index: (each.leader_id, each.leader_epoch) for each in partitions})
    return said[0] if all(each == said[0] for each in said) else {}


def verdict_of(
    cluster: ProcessCluster, topic: str, writers: list[Writer], reader: Reader, *, healed_at: float
) -> Verdict:
    """Wait until the cluster is whole again, end the load, and look at everything. `healed_at` is monotonic."""
    copies = len(cluster.brokers)
    eventually(lambda: whole(cluster, topic, copies), "all replicas are in sync again, unaided")
    whole_after_s = time.monotonic() - healed_at
    for writer in writers:
        writer.end()
    problems = [f"{writer.name}: {writer.unanswered} were never answered" for writer in writers if writer.unanswered]
    problems += [f"{writer.name}: {text}" for writer in writers for text in writer.refused[:3]]
    ends = eventually(lambda: end_offsets(cluster, topic, copies), "the ends of all partitions are known for certain")
    reader.read_to(ends, PATIENCE_S)
    reader.end()
    problems += [f"reader: {text}" for text in reader.errors[:3]]
    problems += _against_the_topic(cluster, topic, writers, read_all(cluster, topic, ends), reader, ends)
    eventually(lambda: whole(cluster, topic, copies), "all replicas are in sync")
    try:
        eventually(lambda: not different_copies(cluster, topic, len(ends)), "the copies are alike")
    except AssertionError:
        problems += [
            f"{topic}-{number} differs from node to node" for number in different_copies(cluster, topic, len(ends))
        ]
    problems += [
        f"{node.node_id}: a bug is in its log" for node in cluster.nodes.values() if "Traceback" in node.log_text()
    ]
    acknowledged = sum(len(numbers) for writer in writers for numbers in writer.acknowledged.values())
    return Verdict(acknowledged, max(writer.longest_gap_s for writer in writers), whole_after_s, problems)


def end_offsets(cluster: ProcessCluster, topic: str, copies: int) -> dict[int, int]:
    """The high watermark of each partition; {} where it may be that of a leader that others have replaced."""
    before = whole(cluster, topic, copies)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ends", **QUIET})
    try:
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=5)[1] for number in before
        }
    except KafkaException:
        return {}
    finally:
        consumer.close()
    return ends if whole(cluster, topic, copies) == before else {}


def read_all(cluster: ProcessCluster, topic: str, ends: dict[int, int]) -> dict[int, list[tuple[int, bytes]]]:
    """(offset, value) of all committed records of each partition, read again from the start."""
    reader = Reader(cluster.bootstrap_servers, topic, len(ends))
    reader.start()
    try:
        reader.read_to(ends, PATIENCE_S)
    finally:
        reader.end()
    return {number: [each for each in reader.seen[number] if each[0] < end] for number, end in ends.items()}


def _against_the_topic(
    cluster: ProcessCluster,
    topic: str,
    writers: list[Writer],
    found: dict[int, list[tuple[int, bytes]]],
    reader: Reader,
    ends: dict[int, int],
) -> list[str]:
    problems: list[str] = []
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for partition, records in found.items():
        for _, value in records:
            label, _, number = value.decode().partition(":")
            numbers[label, partition].append(int(number))
        seen = [each for each in reader.seen[partition] if each[0] <= (records[-1][0] if records else -1)]
        if seen != records:
            gone = len(set(seen) - set(records))
            problems.append(f"partition {partition}: the reader saw {len(seen)} records of which {gone} are not there")
    for writer in writers:
        for partition in ends:
            there = numbers[writer.label, partition]
            counted = Counter(there)
            lost = [number for number in writer.acknowledged[partition] if number not in counted]
            twice = [number for number, times in counted.items() if times > 1]
            where = f"{writer.name}, partition {partition}"
            if lost:
                copies = _in_the_logs(cluster, topic, partition, {f"{writer.label}:{number}" for number in lost})
                problems.append(
                    f"{where}: {len(lost)} of {len(writer.acknowledged[partition])} acknowledged records are lost,"
                    f" {lost[:3]} first, {lost[-1]} last; read was to {ends[partition]}; {copies}"
                )
            if twice:
                problems.append(f"{where}: {len(twice)} records came twice, {twice[:3]} first")
            if there != sorted(there):
                problems.append(f"{where}: the order is broken")
    return problems


def _in_the_logs(cluster: ProcessCluster, topic: str, partition: int, lost: set[str]) -> str:
    """How many of these records each replica has, and its log end offset: a hint at the cause."""
    texts = []
    for node in cluster.brokers:
        data = log_bytes(node, topic, partition)
        records = [
            record
            for start, header in read_batches(data)
            if not header.is_control
            for record in read_records(data[start : start + header.size_bytes], header)
        ]
        there = sum(record.value is not None and record.value.decode() in lost for record in records)
        end = records[-1].offset + 1 if records else 0
        texts.append(f"node {node.node_id} has {there} of them and ends at {end}")
    return ", ".join(texts)


def log_bytes(node: NodeProcess, topic: str, partition: int) -> bytes:
    """The log of one replica, all segments in a row."""
    directory = node.plan.data_dir / f"{topic}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def different_copies(cluster: ProcessCluster, topic: str, partitions: int) -> list[int]:
    """Partitions of which not all replicas have the same bytes."""
    return [
        number for number in range(partitions) if len({log_bytes(node, topic, number) for node in cluster.brokers}) != 1
    ]
