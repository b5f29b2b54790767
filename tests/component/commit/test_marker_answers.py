"""The marker of a query in a topic, read from a broker that a test plays: how far, how often, and until which error."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode, ProtocolError
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from odradek.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.record.batch import patch_base_offset
from odradek.record.builder import build_batch
from odradek.record.control import transaction_marker
from odradek.record.record import Record
from pyspark_odradek.client.cluster import RetriableError
from pyspark_odradek.errors import ClusterError
from pyspark_odradek.options import EARLIEST, LATEST
from pyspark_odradek.topic_sink.marker_topic import SETTINGS, Marker, MarkerTopic
from pyspark_odradek.topic_sink.task_writers.prepared import Prepared
from tests.component.commit.conftest import TOPIC, PlayedCluster
from tests.support.sleeps import without_sleep

QUERY = b"query"


def at(offset: int, data: bytes) -> bytes:
    placed = bytearray(data)
    patch_base_offset(placed, offset)
    return bytes(placed)


def marker(offset: int, batch_id: int, *, key: bytes = QUERY, producer_id: int = -1) -> bytes:
    """A batch with the marker of a query's batch; with a producer it is of a transaction."""
    value = json.dumps({"batch": batch_id, "run": "run", "plan": ""}).encode()
    is_transactional = producer_id >= 0
    return at(
        offset,
        build_batch(
            [Record(key, value, (), timestamp_ms=1)],
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            transactional=is_transactional,
        ),
    )


def end(offset: int, producer_id: int, *, commit: bool) -> bytes:
    made = transaction_marker(
        commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    return at(offset, made)


def part(*batches: bytes, end_offset: int, stable: int | None = None, code: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=end_offset,
        last_stable_offset=end_offset if stable is None else stable,
        records=b"".join(batches),
    )


def read(played: PlayedCluster, *, known: Marker | None = None, stable: bool = True, **settings: str) -> int | None:
    found = MarkerTopic(played.connected(**settings), TOPIC).read("query", stable=stable, known=known)
    return None if found is None else found.batch_id


def positions(played: PlayedCluster) -> list[int]:
    return [each.topics[0].partitions[0].fetch_offset for each in played.asked(ApiKey.FETCH)]


def with_limits(played: PlayedCluster, **limits: str) -> None:
    """The topic has these settings, whose dots are underscores here."""
    configs = [
        DescribeConfigsResourceResult(name=name.replace("_", "."), value=value) for name, value in limits.items()
    ]
    result = DescribeConfigsResult(resource_type=2, resource_name=TOPIC, configs=configs)
    played.peer.on(ApiKey.DESCRIBE_CONFIGS, lambda *_: DescribeConfigsResponse(results=[result]))


def of_tasks(count: int) -> Marker:
    """The marker of a batch that so many tasks have written, with names as Spark's queries have them."""
    query, run = UUID(int=17**30), UUID(int=19**28)
    tasks = tuple(
        Prepared(
            f"odradek-sink.{query}.{number}.0.{number % 8}",
            1000 + number * 7,
            number % 3,
            "orders",
            number % 64,
            "s3://bucket/checkpoints/orders/odradek-staging",
            f"{query}/{run}/7/{number}-{5000 + number}",
            1_000_000 + number * number % 99_991,
        )
        for number in range(count)
    )
    return Marker(7, str(run), "plan", tasks, 1_700_000_000_000)


def test_a_marker_of_more_tasks_than_the_topic_takes_is_refused(played: PlayedCluster) -> None:
    """It is refused before it is produced, with the setting to alter; a marker that fits is created."""
    topic, many = MarkerTopic(played.connected(), TOPIC), of_tasks(10_000)
    with_limits(played, max_message_bytes=SETTINGS["max.message.bytes"], segment_bytes=SETTINGS["segment.bytes"])
    assert len(topic.record("query", many).data) < int(SETTINGS["max.message.bytes"])
    for name in ("max_message_bytes", "segment_bytes"):
        with_limits(played, **{"max_message_bytes": "1048588", "segment_bytes": "1073741824", name: "100000"})
        with pytest.raises(ClusterError, match=f"names 10,000 tasks in .* has {name.replace('_', '.')}=100000"):
            topic.record("query", many)
    asked = len(played.asked(ApiKey.DESCRIBE_CONFIGS))
    topic.record("query", of_tasks(100))
    assert len(played.asked(ApiKey.DESCRIBE_CONFIGS)) == asked == 3


def test_a_marker_above_64_kib_is_compared_with_the_settings_of_the_topic(played: PlayedCluster) -> None:
    topic, marked = MarkerTopic(played.connected(), TOPIC), of_tasks(5000)
    with_limits(played, max_message_bytes="4194304", segment_bytes="4194304")
    size_bytes = len(topic.record("query", marked).data)
    assert 64 << 10 < size_bytes < 128 << 10
    for spare, fits in ((0, True), (-1, False)):
        with_limits(played, max_message_bytes=str(size_bytes + spare))
        if fits:
            topic.record("query", marked)
        else:
            with pytest.raises(ClusterError, match=f"names 5,000 tasks in {size_bytes:,} bytes"):
                topic.record("query", marked)


def test_a_marker_is_read_as_it_was_written(played: PlayedCluster) -> None:
    topic = MarkerTopic(played.connected(), TOPIC)
    written = [Marker(6, "run", "plan"), of_tasks(3)._replace(before=("newer", "older"))]
    batches = [at(offset, topic.record("query", marked).data) for offset, marked in enumerate(written)]
    for end_offset, marked in enumerate(written, start=1):
        played.log = (0, end_offset)
        played.fetched = [part(batches[end_offset - 1], end_offset=end_offset)]
        assert topic.read("query", stable=True) == marked


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_missing_topic_is_created_for_markers_of_many_tasks(
    played: PlayedCluster, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    """It is compacted and has one partition. The query that has created it logs that."""
    known = played.peer.answers[ApiKey.METADATA]
    created: list[CreatableTopic] = []

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        found: MetadataResponse = known(request, version)
        for topic in found.topics if not created else ():
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        return found

    def create(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        created.extend(request.topics)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=TOPIC, error_code=code)])

    played.peer.on(ApiKey.METADATA, metadata)
    played.peer.on(ApiKey.CREATE_TOPICS, create)
    with_limits(played, cleanup_policy="compact")
    for _ in range(2):
        MarkerTopic(played.connected(), TOPIC).ensure()
    (topic,) = created
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (TOPIC, 1, -1)
    assert {each.name: each.value for each in topic.configs} == SETTINGS
    assert (SETTINGS["max.message.bytes"], SETTINGS["segment.bytes"]) == ("4194304", "4194304")
    assert caplog.messages.count("created the marker topic t") == (code is ErrorCode.NONE)


# Answers of Fetch, one list of batches and the end and last stable offset for each; and the newest batch with a marker.
LOGS: dict[str, tuple[list[PartitionData], int | None]] = {
    "nothing": ([part(end_offset=0)], None),
    "one": ([part(marker(0, 3), end_offset=1)], 3),
    "in two answers": ([part(marker(0, 3), end_offset=2), part(marker(1, 4), end_offset=2)], 4),
    "of another query": ([part(marker(0, 3), marker(1, 9, key=b"another"), end_offset=2)], 3),
    "committed": ([part(marker(0, 3), marker(1, 4, producer_id=7), end(2, 7, commit=True), end_offset=3)], 4),
    "aborted": ([part(marker(0, 3), marker(1, 4, producer_id=7), end(2, 7, commit=False), end_offset=3)], 3),
    "aborted, then another": (
        [part(marker(0, 3, producer_id=7), end(1, 7, commit=False), marker(2, 4), end_offset=3)],
        4,
    ),
    "its end is gone": ([part(marker(0, 3, producer_id=7), end_offset=1, stable=1)], 3),
    "its end is behind": (
        [part(marker(0, 3, producer_id=7), end_offset=1, stable=2), part(end(1, 7, commit=False), end_offset=2)],
        None,
    ),
    "committed, then aborted": (
        [
            part(
                marker(0, 3, producer_id=7),
                end(1, 7, commit=True),
                marker(2, 4, producer_id=7),
                end(3, 7, commit=False),
                end_offset=4,
            )
        ],
        3,
    ),
    "an end of another": ([part(marker(0, 3, producer_id=7), end(1, 8, commit=False), end_offset=2)], 3),
}


@pytest.mark.parametrize(("answers", "newest"), LOGS.values(), ids=LOGS.keys())
def test_the_newest_committed_marker_counts(
    played: PlayedCluster, answers: list[PartitionData], newest: int | None
) -> None:
    played.log = (0, answers[-1].high_watermark)
    played.fetched = [*answers]
    assert read(played) == newest
    assert played.fetched == []


def test_every_end_before_a_record_counts(played: PlayedCluster) -> None:
    played.log = (0, 5)
    two = marker(0, 2, producer_id=8) + marker(1, 3, producer_id=7)
    ends = end(2, 8, commit=True) + end(3, 7, commit=False)
    played.fetched = [part(two, ends, marker(4, 9, producer_id=6), end_offset=5, stable=4)]
    assert read(played, stable=False) == 2


@pytest.mark.parametrize("known", [2, 3, 4, None])
def test_the_newer_one_of_topic_and_group_counts(played: PlayedCluster, known: int | None) -> None:
    played.log = (0, 1)
    played.fetched = [part(marker(0, 3), end_offset=1)]
    assert read(played, known=None if known is None else Marker(known, "run")) == max(3, known or 0)


@pytest.mark.parametrize(
    ("open_batch", "known", "stable", "waits"),
    [(4, None, True, True), (4, 4, True, False), (4, 5, True, False), (4, 3, True, True), (4, None, False, False)],
)
def test_an_open_transaction_is_waited_for_where_it_may_change_the_answer(
    played: PlayedCluster, open_batch: int, known: int | None, stable: bool, waits: bool
) -> None:
    played.log = (0, 2)
    played.fetched = [part(marker(0, 2), marker(1, open_batch, producer_id=7), end_offset=2, stable=1)]
    if waits:
        with pytest.raises(RetriableError, match="a transaction of query is open in t-0 at offset 1"):
            read(played, known=None if known is None else Marker(known, "run"))
    else:
        found = read(played, known=None if known is None else Marker(known, "run"), stable=stable)
        assert found == (known or 2)


@pytest.mark.parametrize(
    ("topic_id", "second_position"),
    [(UUID(int=3), 2), (None, 0)],
    ids=["goes on", "a topic without an id is read whole"],
)
def test_a_process_reads_on_from_where_it_was(
    played: PlayedCluster, topic_id: UUID | None, second_position: int
) -> None:
    played.topic_id = topic_id
    played.log = (0, 2)
    played.fetched = [part(marker(0, 3), marker(1, 4), end_offset=2)]
    assert read(played) == 4
    played.log = (0, 3)
    played.fetched = [part(*[marker(0, 3), marker(1, 4)][second_position:], marker(2, 5), end_offset=3)]
    assert read(played) == 5
    assert positions(played) == [0, second_position]


def test_a_process_reads_again_from_the_first_transaction_that_was_open(played: PlayedCluster) -> None:
    played.log = (0, 3)
    played.fetched = [part(marker(0, 3), marker(1, 4, producer_id=7), marker(2, 1, key=b"x"), end_offset=3, stable=1)]
    assert read(played, stable=False) == 3
    played.fetched = [part(marker(1, 4, producer_id=7), marker(2, 1, key=b"x"), end(3, 7, commit=True), end_offset=4)]
    assert read(played) == 4
    assert positions(played) == [0, 1]


def test_another_topic_of_the_same_name_is_read_whole(played: PlayedCluster) -> None:
    played.log = (0, 1)
    played.fetched = [part(marker(0, 3), end_offset=1)]
    assert read(played) == 3
    played.topic_id = UUID(int=4)
    played.fetched = [part(end_offset=1), part(marker(0, 1), end_offset=1)]
    with pytest.raises(RetriableError, match="t-0 has no record from offset 0 on"):
        read(played)
    assert read(played) == 1
    assert positions(played) == [0, 0, 0]


def test_all_of_the_log_is_asked_for_at_once(played: PlayedCluster) -> None:
    """An open transaction of another query would hold back what is asked for as committed."""
    assert read(played, max_partition_fetch_bytes="1234") is None
    (asked,) = played.asked(ApiKey.FETCH)
    assert (asked.max_wait_ms, asked.isolation_level) == (0, 0)
    assert asked.topics[0].partitions[0].partition_max_bytes == 1234
    assert [each.isolation_level for each in played.asked(ApiKey.LIST_OFFSETS)] == [1, 0]


@pytest.mark.parametrize("unlisted", [{EARLIEST}, {LATEST}, {EARLIEST, LATEST}])
def test_a_partition_that_is_gone_meanwhile_is_looked_for_again(played: PlayedCluster, unlisted: set[int]) -> None:
    played.unlisted = unlisted
    with pytest.raises(RetriableError, match="t-0 is not there"):
        read(played)
    assert positions(played) == []


def test_a_log_that_begins_later_is_read_from_there(played: PlayedCluster) -> None:
    played.log = (5, 6)
    played.fetched = [part(marker(5, 3), end_offset=6)]
    assert read(played) == 3
    assert positions(played) == [5]


def test_a_log_that_was_cut_is_read_whole(played: PlayedCluster) -> None:
    played.log = (0, 2)
    played.fetched = [part(marker(0, 3), marker(1, 4), end_offset=2)]
    assert read(played) == 4
    played.fetched = [part(end_offset=1, code=ErrorCode.OFFSET_OUT_OF_RANGE), part(marker(0, 3), end_offset=1)]
    with pytest.raises(RetriableError, match="t-0 does not have offset 2 any more"):
        read(played)
    played.log = (0, 1)
    assert read(played) == 3
    assert positions(played) == [0, 2, 0]


@pytest.mark.parametrize(
    ("parts", "code", "error", "says"),
    [
        ([], 0, ProtocolError, "fetch of t-0 was answered with 0 partitions"),
        ([part(end_offset=0)] * 2, 0, ProtocolError, "fetch of t-0 was answered with 2 partitions"),
        ([part(end_offset=0)], ErrorCode.FETCH_SESSION_ID_NOT_FOUND, RetriableError, "FETCH_SESSION_ID_NOT_FOUND"),
        ([part(end_offset=0, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)], 0, RetriableError, "NOT_LEADER_OR_FOLLOWER"),
        ([part(end_offset=0, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)], 0, ClusterError, "fetch of t-0: TOPIC_AUTH"),
        ([part(b"\0" * 80, end_offset=1)], 0, ClusterError, "cannot be read from offset 0 on"),
    ],
)
def test_a_failed_fetch_of_the_marker_raises(
    played: PlayedCluster, parts: list[PartitionData], code: int, error: type[Exception], says: str
) -> None:
    topic = FetchableTopicResponse(topic=TOPIC, topic_id=UUID(int=3), partitions=parts)
    played.log = (0, 1)
    played.fetched = [FetchResponse(error_code=code, responses=[topic])]
    with pytest.raises(error, match=says):
        read(played)


def test_an_answer_that_a_quota_puts_off_is_asked_for_again(
    played: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.log = (0, 1)
    played.fetched = [FetchResponse(throttle_time_ms=1500), part(marker(0, 3), end_offset=1)]
    with monkeypatch.context() as patched:
        slept = without_sleep(patched)
        assert read(played) == 3
    assert positions(played) == [0, 0] and slept == [1.5]
    played.log, played.topic_id = (0, 1), UUID(int=9)
    played.fetched = [FetchResponse(throttle_time_ms=1)] * 99
    with pytest.raises(RetriableError, match="is throttled by a quota in every attempt"):
        read(played, default_api_timeout_ms="20")


def test_a_malformed_marker_under_the_key_is_reported(played: PlayedCluster) -> None:
    played.log = (0, 1)
    record = Record(QUERY, b"not json", (), timestamp_ms=1)
    played.fetched = [part(at(0, build_batch([record])), end_offset=1)]
    with pytest.raises(ClusterError, match="which is not a marker"):
        read(played)
