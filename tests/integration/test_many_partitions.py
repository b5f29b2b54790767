"""Thousands of partitions on one node: made in one request, written, read, killed; few files are open, none is large.

`python -m bench.stalls` measures how long other clients wait meanwhile.
"""

from __future__ import annotations

import os

import pytest

from odradek.log.files import MAX_OPEN_FILES
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.clients.api_calls import Calls, batch, fetch_topic, values_in
from tests.support.nodes.node import Node

# The numbers of partitions: more than may be open at once.
SHORT, LONG = 1000, 4000
AT_ONCE = 500
# Open files beside those of logs: sockets, the metadata log, locks, files of the interpreter and of uvloop.
OTHER_FILES = 60
IDLE_BYTES = 20 * 1024
# A log that is written has its newest index entries and the state of its producers in memory.
WRITTEN_BYTES = 40 * 1024


def open_files(node: Node) -> int:
    return len(os.listdir(f"/proc/{node.pid}/fd"))


def write_all(calls: Calls, topic: str, count: int) -> None:
    for first in range(0, count, AT_ONCE):
        partitions = [
            PartitionProduceData(index=number, records=batch(b"v%d" % number))
            for number in range(first, first + AT_ONCE)
        ]
        request = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=partitions)]
        )
        answer = calls.request(ApiKey.PRODUCE, 9, request)
        assert not [each.error_code for each in answer.responses[0].partition_responses if each.error_code]


def read_all(calls: Calls, topic: str, count: int) -> set[bytes | None]:
    """All values; one answer has as many partitions as the broker reads in one go."""
    found: set[bytes | None] = set()
    left = list(range(count))
    while left:
        answer = calls.fetch(fetch_topic(topic, dict.fromkeys(left[:AT_ONCE], 0)), max_wait_ms=1000)
        assert not [each.error_code for each in answer.responses[0].partitions if each.error_code]
        read = {each.partition_index: values_in(each.records) for each in answer.responses[0].partitions}
        found |= {value for values in read.values() for value in values}
        assert any(read.values()), f"nothing of {len(left)} partitions"
        left = [number for number in left if not read.get(number)]
    return found


def ends(calls: Calls, topic: str, count: int) -> list[int]:
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(count)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)])
    return [each.offset for each in calls.request(ApiKey.LIST_OFFSETS, 6, request).topics[0].partitions]


@pytest.mark.parametrize("count", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_thousands_of_partitions_are_made_read_and_outlive_a_kill(own_node: Node, count: int) -> None:
    topic = "many"
    with Calls(own_node.port, timeout_s=120) as calls:
        calls.create_topic(name="before")
        before = own_node.memory_bytes()
        made = CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=count, replication_factor=1)], timeout_ms=60_000
        )
        assert calls.request(ApiKey.CREATE_TOPICS, 7, made).topics[0].error_code == 0
        assert ends(calls, topic, count) == [0] * count
        idle = own_node.memory_bytes()
        assert (idle - before) / count < IDLE_BYTES, "memory of a partition without records"
        assert open_files(own_node) < MAX_OPEN_FILES + OTHER_FILES
        write_all(calls, topic, count)
        assert open_files(own_node) < MAX_OPEN_FILES + OTHER_FILES, "what is written is not kept open"
        assert read_all(calls, topic, count) == {b"v%d" % number for number in range(count)}
        assert open_files(own_node) < MAX_OPEN_FILES + OTHER_FILES, "what is read is not kept open"
        assert (own_node.memory_bytes() - before) / count < WRITTEN_BYTES
    own_node.kill()
    own_node.start()
    with Calls(own_node.port, timeout_s=120) as calls:
        calls.wait_for_leaders(topic, 1)
        assert ends(calls, topic, count) == [1] * count
        assert open_files(own_node) < MAX_OPEN_FILES + OTHER_FILES, "recovery closes what it has opened"
        assert (own_node.memory_bytes() - before) / count < WRITTEN_BYTES
        assert read_all(calls, topic, count) == {b"v%d" % number for number in range(count)}
    own_node.kill()  # closing so many logs in good order is another test's
