"""The transaction coordinator's service over a log in memory: when markers leave, and until when they are sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.client.connection import UnreachableError
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.real_io import RealClock, RealDisk
from odradek.coordinator.batches import decode_batches, encode_batches
from odradek.coordinator.transaction import driver
from odradek.coordinator.transaction.config import TransactionConfig
from odradek.coordinator.transaction.driver import TransactionMarkerSender
from odradek.coordinator.transaction.machine import ProducerIdNeededError, Request
from odradek.coordinator.transaction.metadata import MAX_EPOCH, TransactionMetadata
from odradek.coordinator.transaction.records import TRANSACTION_RECORDS, TRANSACTION_TOPIC, TransactionRecord
from odradek.coordinator.transaction.service import Client, TransactionCoordinator
from odradek.coordinator.transaction.state import TransactionState
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import PartitionImage, TopicImage
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tests.sim.planted_transactions import transaction_bug

Records = Sequence[tuple[int, TransactionRecord]]


class MemoryLog:
    """A machine log that keeps its batches' bytes; it can refuse writes, and hold their commit back."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.committed = asyncio.Event()
        self.committed.set()
        self.refuse: OdradekError | None = None

    @property
    def committed_offset(self) -> int:
        return self.end_offset if self.committed.is_set() else 0

    def prepare(self, records: Sequence[TransactionRecord], *, atomic: bool) -> Generator[None, None, list[bytes]]:
        return encode_batches(TRANSACTION_RECORDS, records, atomic=atomic, max_batch_bytes=100_000, now_ms=1)

    def append(self, groups: Sequence[list[bytes]]) -> int:
        if self.refuse is not None:
            raise self.refuse
        for batch in (batch for group in groups for batch in group):
            self.batches.append(batch)
            self.end_offset += decode_batches(TRANSACTION_RECORDS, batch)[1]
        return self.end_offset

    async def wait_committed(self, end_offset: int) -> None:
        await self.committed.wait()

    async def read_all(self) -> AsyncIterator[Records]:
        base_offset = 0
        for batch in self.batches:
            records, count = decode_batches(TRANSACTION_RECORDS, batch)
            yield [(base_offset + offset, record) for offset, record in records]
            base_offset += count


def image_of(leaders: Mapping[int, int]) -> MetadataImage:
    """A cluster with the transaction topic led by broker 1, and partitions of `t` by partition id -> leader."""
    state = PartitionImage((1,), (1,), 1, 0, 0)
    topics = {
        TRANSACTION_TOPIC: TopicImage(TRANSACTION_TOPIC, UUID(int=9), {0: state}),
        "t": TopicImage(
            "t", UUID(int=8), {n: PartitionImage((1,), (1,), leader, 0, 0) for n, leader in leaders.items()}
        ),
    }
    return MetadataImage(
        offset=1, topics_by_name=topics, topics_by_id={each.topic_id: each for each in topics.values()}, brokers={}
    )


class Node:
    """One coordinator; `sent` are the markers that brokers were given, `answers` what they say, NONE by default."""

    def __init__(self, log: MemoryLog | None = None, config: TransactionConfig | None = None) -> None:
        self.log = log or MemoryLog()
        self.image = image_of({0: 1, 1: 2})
        self.current = True
        self.sent: list[tuple[int, int, int, bool]] = []
        self.answers: list[ErrorCode | Exception] = []
        ids = iter(range(1000, 2000))

        async def new_id() -> int:
            return next(ids)

        async def create_topic(name: str, count: int, factor: int, configs: Mapping[str, str]) -> None:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS)

        markers = TransactionMarkerSender(
            image=lambda: self.image, image_is_current=lambda: self.current, send=self.send
        )
        self.service = TransactionCoordinator(
            config or TransactionConfig(),
            node_id=1,
            clock=RealClock(),
            make_log=lambda partition_id, epoch: self.log,
            image=lambda: self.image,
            create_topic=create_topic,
            run_blocking=RealDisk().run_blocking,
            new_producer_id=new_id,
            markers=markers,
        )
        self.service.on_elected(0, 7)

    async def send(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        (marker,) = request.markers
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        for topic in marker.topics:
            parts = [
                WritableTxnMarkerPartitionResult(partition_index=number, error_code=answer)
                for number in topic.partition_indexes
            ]
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=parts))
            if not answer:
                assert marker.coordinator_epoch == 7
                self.sent += [
                    (broker_id, number, marker.producer_epoch, marker.transaction_result)
                    for number in topic.partition_indexes
                ]
        return WriteTxnMarkersResponse(markers=[result])

    async def begin(self) -> Request:
        producer_id, epoch = await self.service.init_producer_id("x", 60_000, None)
        request = Request("x", producer_id, epoch, 2)
        await self.service.add_partitions(request, [("t", 0), ("t", 1)])
        return request

    def state(self) -> str:
        return self.service.shards[0].machine.ids["x"].state.label

    async def wait_until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not done():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    made = Node()
    await made.wait_until(lambda: made.service.shards[0].runtime.active)
    yield made
    made.log.committed.set()
    await made.service.close()


async def check_that_markers_wait_for_the_decision(node: Node) -> None:
    request = await node.begin()
    node.log.committed.clear()
    ending = asyncio.ensure_future(node.service.end(request, commit=True))
    for _ in range(20):
        await asyncio.sleep(0)
    early = list(node.sent)
    node.log.committed.set()
    await ending
    assert not early, "a marker left before its decision was committed"
    await node.wait_until(lambda: node.state() == "CompleteCommit")
    assert sorted(node.sent) == [(1, 0, 1, True), (2, 1, 1, True)]


async def test_no_marker_leaves_before_its_decision_is_committed(node: Node) -> None:
    await check_that_markers_wait_for_the_decision(node)


async def test_a_marker_that_leaves_early_is_noticed(node: Node) -> None:
    with (
        transaction_bug("marker before its decision is durable").planted(),
        pytest.raises(AssertionError, match="left"),
    ):
        await check_that_markers_wait_for_the_decision(node)


async def check_that_markers_are_sent_until_they_are_taken(node: Node) -> None:
    request = await node.begin()
    node.answers = [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        UnreachableError("no broker there"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ]
    await node.service.end(request, commit=False)
    await node.wait_until(lambda: node.state() == "CompleteAbort")
    assert sorted(node.sent) == [(1, 0, 1, False), (2, 1, 1, False)], "every partition once"


async def test_markers_are_sent_until_they_are_taken(node: Node) -> None:
    await check_that_markers_are_sent_until_they_are_taken(node)


async def test_a_marker_that_is_given_up_is_noticed(node: Node) -> None:
    bug = transaction_bug("failed marker not sent again")
    with bug.planted(), pytest.raises(AssertionError, match="every"):
        await check_that_markers_are_sent_until_they_are_taken(node)


async def test_a_partition_that_is_not_known_yet_is_waited_for(node: Node) -> None:
    """Apache Kafka 4.3.1 takes it for one that was deleted, after a kill, and its transaction hangs."""
    request = await node.begin()
    node.current, node.image = False, image_of({0: 1})
    await node.service.end(request, commit=True)
    await node.wait_until(lambda: len(node.sent) == 1)
    await asyncio.sleep(0.1)
    assert node.state() == "PrepareCommit"
    node.image = image_of({0: 1, 1: -1})
    await asyncio.sleep(0.1)
    assert node.state() == "PrepareCommit", "it has no leader"
    node.image = image_of({0: 1, 1: 3})
    await node.wait_until(lambda: node.state() == "CompleteCommit")
    assert sorted(node.sent) == [(1, 0, 1, True), (3, 1, 1, True)]


async def test_a_partition_that_was_deleted_is_owed_nothing(node: Node) -> None:
    request = await node.begin()
    node.image = image_of({0: 1})
    await node.service.end(request, commit=True)
    await node.wait_until(lambda: node.state() == "CompleteCommit")
    assert node.sent == [(1, 0, 1, True)]


async def test_the_next_leader_epoch_goes_on_with_what_was_decided(node: Node) -> None:
    request = await node.begin()
    node.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
    await node.service.end(request, commit=True)
    node.service.on_resigned(0)
    with pytest.raises(ApiError, match="elsewhere"):
        await node.service.end(request, commit=True)
    after = Node(node.log)
    await after.wait_until(lambda: len(after.sent) == 2 and after.state() == "CompleteCommit")
    assert await after.service.end(request, commit=True) == (request.producer_id, 1)
    await after.service.close()


async def test_a_coordinator_that_was_replaced_completes_nothing(node: Node) -> None:
    request = await node.begin()
    node.answers = [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 2
    await node.service.end(request, commit=True)
    await asyncio.sleep(0.1)
    assert (node.state(), node.sent) == ("PrepareCommit", [])


@pytest.mark.parametrize(
    "change",
    [
        PartitionChangeRecord(partition_id=0, topic_id=UUID(int=9), leader=2, replicas=[2], isr=[2]),
        PartitionChangeRecord(partition_id=0, topic_id=UUID(int=9), leader=-1),
        RemoveTopicRecord(topic_id=UUID(int=9)),
    ],
    ids=["its replica moves away", "it has no leader", "its topic is deleted"],
)
async def test_a_partition_that_goes_away_takes_its_coordinator_with_it(
    node: Node, change: PartitionChangeRecord | RemoveTopicRecord
) -> None:
    """KAFKA-16118: unloading failed where the replica was gone by then, and the old coordinator went on answering."""
    request = await node.begin()
    node.answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
    await node.service.end(request, commit=True)
    tasks = node.service.shards[0]._tasks
    assert tasks, "markers are owed"
    delta = MetadataDelta(node.image)
    delta.replay(change)
    node.image = delta.apply(2, 0)
    node.service.on_metadata(delta, node.image)
    assert not node.service.shards
    for ask in (node.service.end(request, commit=True), node.service.init_producer_id("x", 1000, None)):
        with pytest.raises(ApiError, match="elsewhere"):
            await ask
    await node.wait_until(lambda: not tasks)


async def test_an_end_happens_though_its_client_goes_away(node: Node) -> None:
    request = await node.begin()
    node.log.committed.clear()
    ending: asyncio.Future[Any] = asyncio.ensure_future(node.service.end(request, commit=True))
    await asyncio.sleep(0.01)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    node.log.committed.set()
    await node.wait_until(lambda: node.state() == "CompleteCommit")
    assert len(node.sent) == 2


def reported(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.__dict__["fields"] for record in caplog.records if record.getMessage() == event]


async def test_a_fenced_producer_is_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    request = await node.begin()
    assert not reported(caplog, "producer fenced")
    with pytest.raises(ApiError) as caught:
        await node.service.init_producer_id("x", 60_000, None)
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    identity = {"transactional_id": "x", "producer_id": request.producer_id}
    assert reported(caplog, "producer fenced") == [identity | {"old_epoch": 0, "cause": "InitProducerId"}]


async def test_a_takeover_of_a_transactional_id_is_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged even if no transaction was open: the former producer is fenced, and only the log says by whom."""
    caplog.set_level(logging.INFO)
    producer_id, epoch = await node.service.init_producer_id("x", 60_000, None, by=Client("first", "/10.0.0.1"))
    await node.service.init_producer_id("x", 60_000, (producer_id, epoch), by=Client("first", "/10.0.0.1"))
    assert not reported(caplog, "transactional id taken over")
    second = Client("second", "/10.0.0.2")
    _, epoch = await node.service.init_producer_id("x", 60_000, None, by=second)
    by = {"client": "second", "host": "/10.0.0.2"}
    identity = {"transactional_id": "x", "producer_id": producer_id}
    assert reported(caplog, "transactional id taken over") == [identity | {"old_epoch": epoch - 1} | by]
    await node.service.add_partitions(Request("x", producer_id, epoch, 2), [("t", 0)])
    with pytest.raises(ApiError):
        await node.service.init_producer_id("x", 60_000, None, by=Client("third", "/10.0.0.3"))
    (fenced,) = reported(caplog, "producer fenced")
    assert (fenced["client"], fenced["host"]) == ("third", "/10.0.0.3")


async def test_one_failure_does_not_end_the_search_for_timed_out_transactions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(config=TransactionConfig(abort_check_interval_ms=10))
    await node.wait_until(lambda: node.service.shards[0].runtime.active)
    machine = node.service.shards[0].machine
    producer_id, epoch = await node.service.init_producer_id("x", 1, None)
    broken = TransactionMetadata(producer_id, MAX_EPOCH, 1, state=TransactionState.ONGOING)
    machine.ids["broken"] = broken
    machine._ongoing.add("broken")
    event = "a periodic job of the coordinator failed"
    await node.wait_until(lambda: len(reported(caplog, event)) >= 2)
    caplog.set_level(logging.INFO)
    machine._ongoing.discard("broken")
    await node.service.add_partitions(Request("x", producer_id, epoch, 2), [("t", 0)])
    await node.wait_until(lambda: node.state() == "CompleteAbort")
    identity = {"transactional_id": "x", "producer_id": producer_id}
    assert reported(caplog, "producer fenced") == [identity | {"old_epoch": 0, "cause": "its timeout"}]
    await node.service.close()


async def test_a_bug_of_a_task_that_no_one_awaits_is_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    shard = node.service.shards[0]

    async def fails(error: Exception) -> None:
        raise error

    looks = set(shard._tasks)
    for error in (ApiError(ErrorCode.NOT_COORDINATOR), ProducerIdNeededError(), ZeroDivisionError("ours")):
        shard.spawn(fails(error))
    await node.wait_until(lambda: not shard._tasks.keys() - looks)
    assert [str(each["error"]) for each in reported(caplog, "a task of the coordinator failed")] == ["ours"]


async def test_a_marker_that_is_refused_again_and_again_is_logged_now_and_then(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "FIRST_PAUSE_MS", 2)
    monkeypatch.setattr(driver, "LAST_PAUSE_MS", 4)
    request = await node.begin()
    event = "transaction marker refused repeatedly"
    node.answers = [*[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 20]
    node.answers += [cast("ErrorCode", 32_000)] * 20
    await node.service.end(request, commit=True)
    await node.wait_until(lambda: node.state() == "CompleteCommit")
    assert [each["code"] for each in reported(caplog, event)] == ["NOT_ENOUGH_REPLICAS", 32_000]
    assert reported(caplog, event)[0] == {"partition": "t-0", "transactional_id": "x", "code": "NOT_ENOUGH_REPLICAS"}


@pytest.mark.parametrize(
    ("timeout_ms", "two_phase", "code"),
    [
        (0, False, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_001, False, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (60_000, True, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_a_transaction_lasts_no_longer_than_is_allowed(
    node: Node, *, timeout_ms: int, two_phase: bool, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        await node.service.keep_prepared("x", timeout_ms, None, two_phase=two_phase)
    assert refused.value.code is code and not node.service.shards[0].machine.ids
    await node.service.keep_prepared("x", 900_000, None, two_phase=False)


async def test_transactions_are_listed_and_described(node: Node) -> None:
    service, request = node.service, await node.begin()

    async def listed(pattern: str | None) -> list[str]:
        return [each.transactional_id for each in await service.list_transactions([], [], -1, pattern)]

    assert [await listed(pattern) for pattern in (None, "", "x", "y.*")] == [["x"], ["x"], ["x"], []]
    with pytest.raises(ApiError) as refused:
        await listed("(")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    found = await service.describe("x")
    assert (found.error_code, found.transaction_state, found.producer_id) == (0, "Ongoing", request.producer_id)
    assert (await service.describe("y")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert await service.verify_partitions(request, [("t", 0)]) == {("t", 0)}
    assert await service.verify_partitions(request, [("t", 0), ("u", 0)]) == {("t", 0)}
    service.on_resigned(0)
    assert (await service.describe("x")).error_code == ErrorCode.NOT_COORDINATOR
    assert await listed(None) == []


async def test_a_leadership_that_is_older_than_the_present_one_changes_nothing(node: Node) -> None:
    present = node.service.shards[0]
    node.service.on_elected(0, 6)
    node.service.on_elected(0, 7)
    assert node.service.shards[0] is present and present.runtime.active


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_without_a_log_there_is_no_coordinator(node: Node, code: ErrorCode) -> None:
    """A coordinator without space for its log begins once there is space; any other error is raised."""

    def no_log(partition_id: int, leader_epoch: int) -> MemoryLog:
        raise ApiError(code)

    make, node.service._make_shard = node.service._make_shard, cast("Any", no_log)
    if code is ErrorCode.KAFKA_STORAGE_ERROR:
        node.service.on_elected(0, 8)
    else:
        with pytest.raises(ApiError):
            node.service.on_elected(0, 8)
    assert not node.service.shards
    assert (await node.service.describe("x")).error_code == ErrorCode.NOT_COORDINATOR
    node.service._make_shard = make
    node.service.on_elected(0, 8)
    await node.wait_until(lambda: node.service.shards[0].runtime.active)
