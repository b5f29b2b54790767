"""Long random conversations with one broker, as lists of facts: the same seed must give the same facts on Kafka.

Each walk keeps to what a broker promises: it draws the next request from the seed and from the answers so far, so that
two brokers that answer alike are asked alike.
"""

from __future__ import annotations

from random import Random
from typing import Any

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.fetch_request import FetchRequest, FetchTopic, ForgottenTopic
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.support.clients.api_calls import Calls, batch, batch_count, fetch_request, fetch_topic, fresh_name, name_of

START_MS = 1_700_000_000_000
FIRST_WITH_IDS = 13
Facts = list[object]


class _Sessions:
    """One reader with at most one fetch session, over three topics of two partitions."""

    def __init__(self, port: int, seed: int) -> None:
        self.rng = Random(seed)
        self.calls = Calls(port)
        self.topics = [self.calls.create_topic(2) for _ in range(3)]
        self.ids = {topic: self.calls.topic_id(topic) for topic in self.topics}
        self.session, self.epoch, self.version = 0, 0, 12
        self.facts: Facts = []

    def topic(self, number: int, offsets: dict[int, int], version: int) -> FetchTopic:
        name = self.topics[number]
        return fetch_topic(self.ids[name] if version >= FIRST_WITH_IDS else name, offsets)

    def request(self, what: str, version: int, request: FetchRequest) -> Any:
        answer = self.calls.request(ApiKey.FETCH, version, request)
        number_of = {self.ids[name]: number for number, name in enumerate(self.topics)}
        parts = sorted(
            (
                number_of[each.topic_id] if version >= FIRST_WITH_IDS else self.topics.index(each.topic),
                part.partition_index,
                name_of(part.error_code),
                (part.high_watermark, part.last_stable_offset, part.log_start_offset),
                batch_count(part.records),
            )
            for each in answer.responses
            for part in each.partitions
        )
        same = answer.session_id == self.session
        self.facts.append((what, version, name_of(answer.error_code), bool(answer.session_id), same, parts))
        return answer

    def step(self) -> None:
        rng = self.rng
        drawn = rng.choice([7, 11, 12, 12, 13, 17])
        version = self.version if self.session else drawn
        number, partition = rng.randrange(3), rng.choice([0, 1, 1, 5])
        wanted = rng.choice([0, 1, 2, -1, -1, 99])
        often = ["go on"] * 5 + ["add"] * 3 + ["produce", "cut"] * 2
        what = rng.choice([*often, "begin", "forget", "skip", "stray", "end"])
        topic = self.topics[number]
        if what == "produce":
            self.calls.produce(topic, batch(b"x" * 50, timestamp_ms=START_MS), partition=partition % 2)
        elif what == "cut":
            part = DeleteRecordsPartition(partition_index=partition % 2, offset=rng.choice([1, 2, 3, -1]))
            request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=5000)
            answer = self.calls.request(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]
            self.facts.append((what, name_of(answer.error_code), answer.low_watermark))
        elif what == "begin":
            self.begin(drawn)
        elif what == "skip":
            self.request(what, version, fetch_request(session_id=self.session, session_epoch=self.epoch + 5))
        elif what == "stray":
            self.request(what, version, fetch_request(session_id=1, session_epoch=3))
        else:
            offset = self.calls.list_end(topic, partition % 2) if wanted == -1 else wanted
            self.use(what, version, number, partition, offset)

    def begin(self, version: int) -> None:
        asked: dict[int, dict[int, int]] = {}
        for _ in range(3):
            asked.setdefault(self.rng.randrange(3), {})[self.rng.randrange(2)] = 0
        topics = [self.topic(number, offsets, version) for number, offsets in asked.items()]
        old = self.rng.choice([0, self.session])
        answer = self.request("begin", version, fetch_request(*topics, session_id=old, session_epoch=0))
        self.session, self.epoch, self.version = answer.session_id, 1, version

    def use(self, what: str, version: int, number: int, partition: int, offset: int) -> None:
        request = fetch_request(session_id=self.session, session_epoch=self.epoch)
        if what in ("add", "end"):
            request.topics = [self.topic(number, {partition: offset}, version)]
        if what == "end":
            request.session_epoch = -1
        if what == "forget":
            name = self.topics[number]
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id=self.ids[name], partitions=[partition])
                if version >= FIRST_WITH_IDS
                else ForgottenTopic(topic=name, partitions=[partition])
            ]
        answer = self.request(what, version, request)
        if what == "end" or (not answer.session_id and not answer.error_code):
            self.session = self.epoch = 0
        elif not answer.error_code:
            self.epoch += 1


def walk_fetch_sessions(port: int, seed: int, steps: int) -> Facts:
    """Sessions that begin, grow, shrink and end, with wrong epochs and ids among it, while records come and go."""
    walk = _Sessions(port, seed)
    with walk.calls:
        for _ in range(steps):
            walk.step()
    return walk.facts


def walk_producers(port: int, seed: int, steps: int) -> Facts:
    """Three idempotent producers that repeat themselves, leave gaps, and come with other epochs."""
    rng = Random(seed)
    facts: Facts = []
    with Calls(port) as calls:
        topic = calls.create_topic()
        ids = [calls.producer() for _ in range(3)]
        following, epochs = [0, 0, 0], [0, 0, 0]
        sent: list[list[tuple[int, int, int]]] = [[], [], []]
        for step in range(steps):
            who, count = rng.randrange(3), rng.choice([1, 1, 2, 3])
            epoch = max(0, epochs[who] + rng.choice([0] * 12 + [1, -1]))
            due = following[who]
            sequence = rng.choice([due] * 6 + [max(0, due - count), max(0, due - 2), 0, due + 1, 2**31 - 2])
            if sent[who] and rng.random() < 0.3:  # a batch is sent again: six are looked back, five are remembered
                epoch, sequence, count = rng.choice(sent[who][-6:])
            data = batch(
                *[b"v"] * count,
                producer_id=ids[who],
                producer_epoch=epoch,
                sequence=sequence,
                timestamp_ms=START_MS + step,
            )
            answer = calls.produce(topic, data)
            facts.append((who, epoch, sequence, count, name_of(answer.error_code), answer.base_offset))
            if not answer.error_code and (epoch, sequence, count) not in sent[who]:
                sent[who].append((epoch, sequence, count))
                epochs[who] = max(epochs[who], epoch)
                following[who] = (sequence + count) % 2**31
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        known = calls.request(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions[0].active_producers
        facts.append(sorted((ids.index(p.producer_id), p.producer_epoch, p.last_sequence) for p in known))
    return facts


def walk_times(port: int, seed: int, steps: int) -> Facts:
    """Batches of all codecs with times that go back and forth, and questions for times and places."""
    rng = Random(seed)
    facts: Facts = []
    with Calls(port) as calls:
        topic = calls.create_topic(
            retention_ms=-1, segment_bytes=1_048_576, index_interval_bytes=100, name=fresh_name()
        )
        for _ in range(steps):
            if rng.random() < 0.5:
                values = [b"v" * rng.choice([10, 100, 3000])] * rng.randrange(1, 5)
                codec = rng.choice(["none", "gzip", "snappy", "lz4", "zstd"])
                data = batch(*values, timestamp_ms=START_MS + rng.randrange(10_000), compression=codec)
                facts.append(calls.produce(topic, data).base_offset)
                continue
            wanted = rng.choice([-1, -2, -3, START_MS + rng.randrange(11_000), 0])
            part = ListOffsetsPartition(partition_index=0, timestamp=wanted)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[part])])
            found = calls.request(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0]
            facts.append((wanted, found.offset, found.timestamp, found.leader_epoch))
    return facts
