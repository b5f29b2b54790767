"""Fetch: the records that it returns, its limits, its waits, and its errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.fetch_request import ForgottenTopic
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.record.reader import read_batches
from tests.support.clients.api_calls import (
    Calls,
    batch,
    batch_count,
    bytes_of,
    fetch_request,
    fetch_topic,
    fresh_name,
    name_of,
    values_in,
)
from tests.support.nodes.node import Node

FIRST_WITH_IDS = 13
# Far more than `Calls` waits for an answer: one that comes at all did not wait for it.
LONG_MS = 600_000
only_ours = pytest.mark.only_ours


@pytest.fixture
def calls(node: Node) -> Iterator[Calls]:
    with Calls(node.port) as connection:
        yield connection


@pytest.fixture(scope="module")
def topic(node: Node) -> str:
    """Ten batches of one record each."""
    with Calls(node.port) as connection:
        name = connection.create_topic()
        connection.fill(name, 10)
        return name


SIZE = len(batch(bytes(100)))


class TestOffsets:
    def test_batches_come_as_they_were_sent(self, calls: Calls) -> None:
        topic = calls.create_topic()
        sent = [*calls.fill(topic, 3), batch(b"a", b"b", b"c", compression="zstd")]
        calls.produce(topic, sent[-1])
        answer = calls.read(topic)
        found = bytes_of(answer.records)
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (6, 6, 0)
        places = list(read_batches(found))
        assert [header.base_offset for _, header in places] == [0, 1, 2, 3]
        for (position, header), data in zip(places, sent, strict=True):
            assert found[position + 16 : position + header.size_bytes] == data[16:]
            assert header.partition_leader_epoch == 0

    @pytest.mark.parametrize("offset", [0, 4, 9])
    def test_from_an_offset_to_the_end(self, calls: Calls, topic: str, offset: int) -> None:
        assert batch_count(calls.read(topic, offset).records) == 10 - offset

    def test_an_offset_inside_a_batch_gives_the_whole_batch(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.produce(topic, batch(b"a", b"b", b"c"))
        assert values_in(calls.read(topic, 1).records) == [b"a", b"b", b"c"]

    def test_the_end_is_no_error_and_empty(self, calls: Calls, topic: str) -> None:
        answer = calls.read(topic, 10)
        assert name_of(answer.error_code) == "NONE"
        assert not batch_count(answer.records)
        assert answer.high_watermark == 10

    @pytest.mark.parametrize("offset", [11, 2**62, -1, -2])
    def test_other_offsets_are_out_of_range(self, calls: Calls, topic: str, offset: int) -> None:
        answer = calls.read(topic, offset)
        assert name_of(answer.error_code) == "OFFSET_OUT_OF_RANGE"
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
        assert not answer.records

    def test_every_version_gives_the_same_records(self, calls: Calls, topic: str) -> None:
        topic_id = calls.topic_id(topic)
        found = set()
        for version in range(4, 19):
            named = fetch_topic(topic_id if version >= FIRST_WITH_IDS else topic, {0: 3})
            found.add(bytes_of(calls.fetch(named, version=version).responses[0].partitions[0].records))
        assert len(found) == 1
        assert batch_count(found.pop()) == 7


class TestWhatIsNotThere:
    def test_by_name(self, calls: Calls, topic: str) -> None:
        absent = fetch_topic(fresh_name("absent"), {0: 0})
        answer = calls.fetch(fetch_topic(topic, {0: 0, 7: 0}), absent)
        codes = [name_of(part.error_code) for each in answer.responses for part in each.partitions]
        assert codes == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION"]

    def test_by_id(self, calls: Calls, topic: str) -> None:
        answer = calls.fetch(fetch_topic(calls.topic_id(topic), {0: 0, 7: 0}), version=FIRST_WITH_IDS)
        codes = [name_of(part.error_code) for part in answer.responses[0].partitions]
        assert codes == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
        unknown = calls.fetch(fetch_topic(uuid4(), {0: 0}), version=FIRST_WITH_IDS)
        assert name_of(unknown.responses[0].partitions[0].error_code) == "UNKNOWN_TOPIC_ID"

    def test_one_that_is_there_is_waited_for_all_the_same(self, calls: Calls, topic: str) -> None:
        started = time.monotonic()
        calls.fetch(fetch_topic(topic, {0: 10, 7: 0}), fetch_topic(fresh_name("absent"), {0: 0}), max_wait_ms=300)
        assert time.monotonic() - started > 0.28, "a reader of a deleted topic must not spin"

    def test_a_fetch_of_an_unknown_topic_does_not_wait(self, calls: Calls) -> None:
        answer = calls.fetch(fetch_topic(fresh_name("absent"), {0: 0}), max_wait_ms=LONG_MS)
        assert name_of(answer.responses[0].partitions[0].error_code) == "UNKNOWN_TOPIC_OR_PARTITION"

    def test_an_error_of_a_partition_that_is_there_is_reported_at_once(self, calls: Calls, topic: str) -> None:
        two = calls.create_topic(2)
        answer = calls.fetch(fetch_topic(two, {0: 0, 1: 99}), max_wait_ms=LONG_MS)
        codes = [name_of(part.error_code) for part in answer.responses[0].partitions]
        assert codes == ["NONE", "OFFSET_OUT_OF_RANGE"]

    def test_a_fetch_without_partitions_is_empty(self, calls: Calls) -> None:
        assert calls.fetch(max_wait_ms=LONG_MS, min_bytes=1).responses == []


class TestLeaderEpochs:
    def test_an_epoch_that_we_do_not_know(self, calls: Calls, topic: str) -> None:
        known = calls.fetch(fetch_topic(topic, {0: 0}, current_leader_epoch=0))
        assert name_of(known.responses[0].partitions[0].error_code) == "NONE"
        unknown = calls.fetch(fetch_topic(topic, {0: 0}, current_leader_epoch=1))
        assert name_of(unknown.responses[0].partitions[0].error_code) == "UNKNOWN_LEADER_EPOCH"

    def test_a_history_that_is_not_ours(self, calls: Calls, topic: str) -> None:
        same = calls.fetch(fetch_topic(topic, {0: 5}, last_fetched_epoch=0)).responses[0].partitions[0]
        assert batch_count(same.records) == 5
        unknown = calls.fetch(fetch_topic(topic, {0: 5}, last_fetched_epoch=3)).responses[0].partitions[0]
        assert name_of(unknown.error_code) == "OFFSET_OUT_OF_RANGE"
        ahead = calls.fetch(fetch_topic(topic, {0: 12}, last_fetched_epoch=0)).responses[0].partitions[0]
        assert (ahead.diverging_epoch.epoch, ahead.diverging_epoch.end_offset) == (0, 10)


class TestLimits:
    @pytest.mark.parametrize(("partition_bytes", "total_bytes"), [(1, 2**20), (2**20, 1), (0, 2**20), (SIZE - 1, 1)])
    def test_a_first_batch_over_the_limit_is_given(
        self, calls: Calls, topic: str, partition_bytes: int, total_bytes: int
    ) -> None:
        answer = calls.fetch(fetch_topic(topic, {0: 2}, max_bytes=partition_bytes), max_bytes=total_bytes)
        assert batch_count(answer.responses[0].partitions[0].records) == 1

    def test_partition_max_bytes(self, calls: Calls, topic: str) -> None:
        for room, whole in ((3 * SIZE, 3), (3 * SIZE - 1, 2), (4 * SIZE - 1, 3)):
            answer = calls.fetch(fetch_topic(topic, {0: 0}, max_bytes=room))
            assert batch_count(answer.responses[0].partitions[0].records) == whole

    def test_max_bytes_is_of_all_partitions_in_their_order(self, calls: Calls) -> None:
        topic = calls.create_topic(3)
        for partition in range(3):
            calls.fill(topic, 4, partition=partition)
        for order in ({0: 0, 1: 0, 2: 0}, {2: 0, 0: 0, 1: 0}):
            answer = calls.fetch(fetch_topic(topic, order), max_bytes=6 * SIZE)
            parts = answer.responses[0].partitions
            assert [part.partition_index for part in parts] == list(order)
            assert [batch_count(part.records) for part in parts] == [4, 2, 0]

    def test_only_the_first_partition_with_records_may_exceed(self, calls: Calls) -> None:
        topic = calls.create_topic(3)
        calls.fill(topic, 1, partition=1)
        calls.fill(topic, 1, partition=2)
        answer = calls.fetch(fetch_topic(topic, {0: 0, 1: 0, 2: 0}, max_bytes=1))
        assert [batch_count(part.records) for part in answer.responses[0].partitions] == [0, 1, 0]

    def test_fetch_max_bytes_of_the_broker(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        with (
            Node(tmp_path_factory.mktemp("node"), {"fetch.max.bytes": 1024}) as small,
            Calls(small.port) as calls,
        ):
            topic = calls.create_topic()
            calls.fill(topic, 10)
            assert batch_count(calls.read(topic).records) == 1024 // SIZE
            calls.fill(topic, 1, 5000)
            assert batch_count(calls.read(topic, 10).records) == 1, "a first batch may be larger"

    def test_megabytes_come_whole(self, calls: Calls) -> None:
        topic = calls.create_topic()
        for number in range(8):
            calls.fill(topic, 1, 900_000 + number)
        answer = calls.fetch(fetch_topic(topic, {0: 0}, max_bytes=2**24), max_bytes=2**24)
        sizes = [len(value or b"") for value in values_in(answer.responses[0].partitions[0].records)]
        assert sizes == [900_000 + number for number in range(8)]


class TestWaiting:
    def test_max_wait_passes_where_nothing_comes(self, calls: Calls, topic: str) -> None:
        started = time.monotonic()
        answer = calls.read(topic, 10, max_wait_ms=300, min_bytes=1)
        assert time.monotonic() - started > 0.28
        assert not batch_count(answer.records)

    def test_no_bytes_asked_for_is_no_wait(self, calls: Calls, topic: str) -> None:
        assert not batch_count(calls.read(topic, 10, max_wait_ms=LONG_MS, min_bytes=0).records)

    @pytest.mark.parametrize("max_bytes", [SIZE, 5 * SIZE + 7])
    def test_more_than_an_answer_may_hold_is_not_waited_for(self, calls: Calls, topic: str, max_bytes: int) -> None:
        answer = calls.read(topic, max_wait_ms=LONG_MS, min_bytes=2 * max_bytes, max_bytes=max_bytes)
        assert batch_count(answer.records) == max_bytes // SIZE

    def test_a_record_ends_the_wait(self, calls: Calls, node: Node) -> None:
        topic = calls.create_topic(2)
        request = fetch_request(fetch_topic(topic, {0: 0, 1: 0}), max_wait_ms=LONG_MS)
        with Calls(node.port) as reader:
            waiting = reader.send(ApiKey.FETCH, 12, request)
            time.sleep(0.1)
            calls.fill(topic, 1, partition=1)
            parts = reader.receive(ApiKey.FETCH, 12, waiting).responses[0].partitions
        assert [batch_count(part.records) for part in parts] == [0, 1]

    def test_min_bytes_are_of_all_partitions_together(self, calls: Calls, node: Node) -> None:
        topic = calls.create_topic(2)
        request = fetch_request(fetch_topic(topic, {0: 0, 1: 0}), max_wait_ms=LONG_MS, min_bytes=4 * SIZE)
        with Calls(node.port) as reader:
            waiting = reader.send(ApiKey.FETCH, 12, request)
            for number in range(3):
                calls.fill(topic, 1, partition=number % 2)
            reader.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                reader.receive_frame()
            reader.socket.settimeout(60)
            calls.fill(topic, 1, partition=1)
            parts = reader.receive(ApiKey.FETCH, 12, waiting).responses[0].partitions
        assert [batch_count(part.records) for part in parts] == [2, 2]

    def test_the_records_so_far_are_returned_after_max_wait(self, calls: Calls) -> None:
        topic = calls.create_topic()
        calls.fill(topic, 2)
        started = time.monotonic()
        answer = calls.read(topic, 0, max_wait_ms=300, min_bytes=2**20)
        assert time.monotonic() - started > 0.28
        assert batch_count(answer.records) == 2

    def test_answers_keep_the_order_of_requests(self, calls: Calls, topic: str) -> None:
        waiting = calls.send(ApiKey.FETCH, 12, fetch_request(fetch_topic(topic, {0: 10}), max_wait_ms=300))
        behind = calls.send(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
        assert calls.receive(ApiKey.FETCH, 12, waiting).responses
        assert calls.receive(ApiKey.METADATA, 9, behind).brokers

    @only_ours  # Kafka answers when the time is up
    def test_a_deleted_topic_ends_the_wait(self, calls: Calls, node: Node) -> None:
        topic = calls.create_topic()
        with Calls(node.port) as reader:
            waiting = reader.send(ApiKey.FETCH, 12, fetch_request(fetch_topic(topic, {0: 0}), max_wait_ms=LONG_MS))
            time.sleep(0.1)
            calls.request(ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000))
            part = reader.receive(ApiKey.FETCH, 12, waiting).responses[0].partitions[0]
        assert name_of(part.error_code) in ("UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER")

    @only_ours  # Kafka fails on some
    def test_absurd_numbers_are_taken_as_what_they_mean(self, calls: Calls, topic: str) -> None:
        for wait, least, most in ((-1, 1, -1), (0, -5, 2**31 - 1), (-(2**31), 2**31 - 1, 0)):
            answer = calls.read(topic, 0, max_wait_ms=wait, min_bytes=least, max_bytes=most)
            assert batch_count(answer.records) >= 1
        negative = calls.fetch(fetch_topic(topic, {0: 0}, max_bytes=-1)).responses[0].partitions[0]
        assert batch_count(negative.records) == 1


class TestIsolation:
    def test_aborted_transactions_are_listed_for_read_committed_only(self, calls: Calls, topic: str) -> None:
        assert calls.read(topic, isolation_level=0).aborted_transactions is None
        committed = calls.read(topic, isolation_level=1)
        assert committed.aborted_transactions == []
        assert batch_count(committed.records) == 10


class TestSessions:
    @pytest.fixture
    def three(self, calls: Calls) -> str:
        return calls.create_topic(3)

    @staticmethod
    def parts(answer: FetchResponse) -> dict[int, int]:
        """Batches by partition, of those that are named."""
        return {
            part.partition_index: batch_count(part.records) for each in answer.responses for part in each.partitions
        }

    def begin(self, calls: Calls, topic: str, *partitions: int) -> int:
        answer = calls.fetch(fetch_topic(topic, dict.fromkeys(partitions or (0, 1, 2), 0)), session_epoch=0)
        assert answer.session_id > 0
        return answer.session_id

    def test_a_new_one_names_every_partition_and_then_only_news(self, calls: Calls, three: str) -> None:
        first = calls.fetch(fetch_topic(three, {0: 0, 1: 0, 2: 0}), session_epoch=0)
        assert self.parts(first) == {0: 0, 1: 0, 2: 0}
        session = first.session_id
        quiet = calls.fetch(session_id=session, session_epoch=1)
        assert (quiet.session_id, quiet.responses) == (session, [])
        calls.fill(three, 2, partition=1)
        assert self.parts(calls.fetch(session_id=session, session_epoch=2)) == {1: 2}
        moved = calls.fetch(fetch_topic(three, {1: 2}), session_id=session, session_epoch=3)
        assert self.parts(moved) == {}, "the reader went on, and there is nothing more"

    def test_partitions_are_added_and_forgotten(self, calls: Calls, three: str) -> None:
        session = self.begin(calls, three, 0)
        for partition in range(3):
            calls.fill(three, 1, partition=partition)
        added = calls.fetch(fetch_topic(three, {2: 0}), session_id=session, session_epoch=1)
        assert self.parts(added) == {0: 1, 2: 1}
        forgotten = fetch_request(session_id=session, session_epoch=2)
        forgotten.forgotten_topics_data = [ForgottenTopic(topic=three, partitions=[0])]
        assert self.parts(calls.request(ApiKey.FETCH, 12, forgotten)) == {2: 1}

    def test_by_topic_id(self, calls: Calls, three: str) -> None:
        topic_id = calls.topic_id(three)
        first = calls.fetch(fetch_topic(topic_id, {0: 0}), session_epoch=0, version=13)
        calls.fill(three, 1)
        found = calls.fetch(session_id=first.session_id, session_epoch=1, version=13)
        assert [each.topic_id for each in found.responses] == [topic_id]
        mixed = calls.fetch(session_id=first.session_id, session_epoch=2, version=12)
        assert name_of(mixed.error_code) == "FETCH_SESSION_TOPIC_ID_ERROR"

    def test_an_epoch_out_of_step(self, calls: Calls, three: str) -> None:
        session = self.begin(calls, three)
        for epoch in (2, 7):
            answer = calls.fetch(session_id=session, session_epoch=epoch)
            assert name_of(answer.error_code) == "INVALID_FETCH_SESSION_EPOCH"
            assert answer.responses == []
        assert not calls.fetch(session_id=session, session_epoch=1).error_code, "the right one goes on"
        again = calls.fetch(session_id=session, session_epoch=1)
        assert name_of(again.error_code) == "INVALID_FETCH_SESSION_EPOCH"

    def test_an_id_that_no_one_has(self, calls: Calls) -> None:
        answer = calls.fetch(session_id=123_456_789, session_epoch=5)
        assert name_of(answer.error_code) == "FETCH_SESSION_ID_NOT_FOUND"

    def test_epoch_minus_one_ends_a_session(self, calls: Calls, three: str) -> None:
        session = self.begin(calls, three)
        last = calls.fetch(fetch_topic(three, {0: 0}), session_id=session, session_epoch=-1)
        assert (last.error_code, last.session_id) == (0, 0)
        assert self.parts(last) == {0: 0}
        gone = calls.fetch(session_id=session, session_epoch=1)
        assert name_of(gone.error_code) == "FETCH_SESSION_ID_NOT_FOUND"

    def test_a_new_one_in_place_of_an_old_one(self, calls: Calls, three: str) -> None:
        old = self.begin(calls, three)
        new = calls.fetch(fetch_topic(three, {0: 0}), session_id=old, session_epoch=0).session_id
        assert new not in (0, old)
        assert name_of(calls.fetch(session_id=old, session_epoch=1).error_code) == "FETCH_SESSION_ID_NOT_FOUND"

    def test_an_error_is_reported_every_time_and_its_end_once(self, calls: Calls, three: str) -> None:
        calls.fill(three, 1)
        first = calls.fetch(fetch_topic(three, {0: 99, 1: 0}), session_epoch=0)
        session = first.session_id
        for epoch in (1, 2):
            part = calls.fetch(session_id=session, session_epoch=epoch).responses[0].partitions[0]
            assert (part.partition_index, name_of(part.error_code)) == (0, "OFFSET_OUT_OF_RANGE")
        healed = calls.fetch(fetch_topic(three, {0: 1}), session_id=session, session_epoch=3)
        assert self.parts(healed) == {0: 0}
        assert self.parts(calls.fetch(session_id=session, session_epoch=4)) == {}

    def test_every_partition_has_its_turn_in_a_small_answer(self, calls: Calls, three: str) -> None:
        for partition in range(3):
            calls.fill(three, 5, partition=partition)
        offsets = {0: 0, 1: 0, 2: 0}
        first = calls.fetch(fetch_topic(three, offsets, max_bytes=1), session_epoch=0)
        answer, turns = first, []
        for epoch in range(1, 8):
            for each in answer.responses:
                for part in each.partitions:
                    if batch_count(part.records):
                        turns.append(part.partition_index)
                        offsets[part.partition_index] += 1
            moved = fetch_topic(three, {turns[-1]: offsets[turns[-1]]}, max_bytes=1)
            answer = calls.fetch(moved, session_id=first.session_id, session_epoch=epoch)
        assert sorted(turns[1:4]) == sorted(turns[4:7]) == [0, 1, 2]

    def test_a_session_fetch_waits_like_any_other(self, calls: Calls, node: Node, three: str) -> None:
        with Calls(node.port) as reader:
            session = self.begin(reader, three)
            request = fetch_request(session_id=session, session_epoch=1, max_wait_ms=LONG_MS)
            waiting = reader.send(ApiKey.FETCH, 12, request)
            time.sleep(0.1)
            calls.fill(three, 1, partition=2)
            assert self.parts(reader.receive(ApiKey.FETCH, 12, waiting)) == {2: 1}

    def test_each_request_that_waits_is_answered_when_the_next_one_comes(self, node: Node, three: str) -> None:
        with Calls(node.port) as reader:
            session = self.begin(reader, three, 0)
            before = None
            for epoch in range(1, 5):
                request = fetch_request(session_id=session, session_epoch=epoch, max_wait_ms=LONG_MS)
                sent = reader.send(ApiKey.FETCH, 12, request)
                if before is not None:
                    assert self.parts(reader.receive(ApiKey.FETCH, 12, before)) == {}
                before = sent

    def test_a_session_ends_with_its_last_partition(self, calls: Calls, three: str) -> None:
        session = self.begin(calls, three, 0)
        emptied = fetch_request(session_id=session, session_epoch=1)
        emptied.forgotten_topics_data = [ForgottenTopic(topic=three, partitions=[0])]
        answer = calls.request(ApiKey.FETCH, 12, emptied)
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert name_of(calls.fetch(session_id=session, session_epoch=2).error_code) == "FETCH_SESSION_ID_NOT_FOUND"

    def test_a_new_one_may_be_empty(self, calls: Calls, three: str) -> None:
        session = calls.fetch(session_epoch=0).session_id
        assert session
        calls.fill(three, 1)
        found = calls.fetch(fetch_topic(three, {0: 0}), session_id=session, session_epoch=1)
        assert self.parts(found) == {0: 1}

    @only_ours  # Kafka keeps its cache in shards, so that the limit is not to the point
    def test_no_more_than_there_are_slots(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        settings: dict[str, object] = {"max.incremental.fetch.session.cache.slots": 2}
        with Node(tmp_path_factory.mktemp("node"), settings) as small, Calls(small.port) as calls:
            topic = calls.create_topic()
            named = fetch_topic(topic, {0: 0})
            sessions = [calls.fetch(named, session_epoch=0).session_id for _ in range(4)]
            assert [bool(session) for session in sessions] == [True, True, False, False]
            calls.fetch(session_id=sessions[0], session_epoch=-1)
            assert calls.fetch(named, session_epoch=0).session_id
