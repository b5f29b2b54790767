"""Fetch: key 1, versions 4-18, for consumers and for followers alike.

Behaviour: reads each partition from the asked offset up to the reader's bound (high watermark, last stable offset for
READ_COMMITTED, log end for followers), in the order of the request or session. The first batch of the first partition
that has one is given even where it is larger than the limits (KIP-74). An answer waits for min_bytes, or for max_bytes
where that is less, up to max_wait_ms, except where a partition that is there has an error. A follower's fetch offset is
its acknowledgement.

The function decides at once, in the order of the requests; a long poll is a future that new data wakes (no timer scan).
Records are slices of the log's files: they do not pass through here, except that the log verifies
what was on disk before this start. A leader may send a consumer to a replica in its
rack (KIP-392), and a follower serves consumers of versions from 11 on, up to the watermark that it knows of.

Versions: 7 sessions (KIP-227); 9 leader epoch fencing (KIP-320); 11 rack; 12 flexible, divergence by last_fetched_epoch
(KIP-595), leader hints (KIP-951); 13 topic ids (KIP-516); 15 replica state with broker epoch (KIP-903); 16 node
endpoints; 17 directory ids; 18 the follower's high watermark.

A fetch with a replica id is a follower's: it is heard only on `inter.broker.listener.name` (elsewhere
TOPIC_AUTHORIZATION_FAILED), and counts only with the epoch under which that broker is registered.

Not done: tiered storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.protocol.codec import RecordsChunks
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.replica.partition import PartitionRead
from odradek.replica.quiet import is_quiet, stays
from odradek.replica.waiters import DataWait
from odradek.server.fetch_session_cache import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    Asked,
    FetchSession,
    PartitionKey,
    TopicKey,
)
from odradek.server.handlers.shared import leader_hint
from odradek.server.log_creation import must_wait, when_made

if TYPE_CHECKING:
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

_FIRST_WITH_RACK = 11
_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_LEADERS = 12
# Long polls over all connections; beyond it a Fetch is answered at once with what there is.
MAX_PARKED = 50_000
# Of thousands of partitions those that were not reached by then get what they would have got had max_bytes been less:
# their marks, and no records this time.
READ_MS = 20
# No reason to answer before max_wait_ms where other partitions are waited for: a reader of a topic that was just
# deleted would ask again and again. A follower pauses by itself, and may have heard of a new topic before us.
_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def _is_damage(error: ApiError | StorageError) -> bool:
    return isinstance(error, ApiError) and error.code is ErrorCode.CORRUPT_MESSAGE


def _nothing_of(partition: Partition) -> PartitionRead:
    log = partition.log
    return PartitionRead(log.high_watermark, log.last_stable_offset, log.log_start_offset)


def handle(
    context: RequestContext, request: FetchRequest
) -> FetchResponse | asyncio.Future[FetchResponse] | Coroutine[object, object, FetchResponse]:
    """Read what is there; a response where that is enough, else a future of one."""
    if context.broker.replicas.is_making_logs and must_wait(context, (topic.partitions for topic in request.topics)):
        return when_made(context, request, handle)
    by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    try:
        fetch = _Fetch(context, request, by_id)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    fetch.read()
    if fetch.is_enough() or request.max_wait_ms <= 0 or context.broker.replicas.parked_fetch_count >= MAX_PARKED:
        return fetch.response()
    return fetch.park()


class _Fetch:
    """One request under way; read again from the start whenever it wakes."""

    __slots__ = (
        "_asked",
        "_context",
        "_counts",
        "_deadline_ms",
        "_image",
        "_incremental",
        "_is_stranger",
        "_max_bytes",
        "_min_bytes",
        "_replica_epoch",
        "_replica_id",
        "_request",
        "_session",
        "_tells_marks",
        "answers",
        "failed",
        "partitions",
        "size_bytes",
    )

    def __init__(self, context: RequestContext, request: FetchRequest, by_id: bool) -> None:
        """
        Raises:
            ApiError: the session that the request names is not there, or not at this epoch.
        """
        self._context = context
        self._request = request
        self._image = context.broker.image
        if context.api_version >= 15:
            self._replica_id, self._replica_epoch = (
                request.replica_state.replica_id,
                request.replica_state.replica_epoch,
            )
        else:
            self._replica_id, self._replica_epoch = request.replica_id, -1
        # Once: a follower's session may have thousands of partitions.
        self._is_stranger = self._replica_id >= 0 and not context.on_inter_broker_listener
        self._deadline_ms = context.broker.clock.monotonic_ms() + max(0, request.max_wait_ms)
        max_bytes = request.max_bytes
        if self._replica_id < 0:
            max_bytes = min(max_bytes, context.broker.replicas.fetch_max_bytes)
        # Who waits for more than an answer may hold would wait to the end for what cannot come.
        self._max_bytes, self._min_bytes = max_bytes, min(request.min_bytes, max_bytes)
        self._incremental = False
        self._session: FetchSession | None = None
        self._asked = self._resolve_session(by_id)
        # A follower says once where it is. What waits may be read again long after it died.
        self._counts = self._replica_id >= 0
        # Where followers serve consumers, they get a watermark that moved without waiting for data.
        self._tells_marks = self._counts and context.broker.replicas.selector is not None and self._session is not None
        self.answers: list[tuple[Asked, PartitionData]] = []
        self.partitions: list[Partition] = []
        self.size_bytes = 0
        self.failed = False

    def _resolve_session(self, by_id: bool) -> Iterable[Asked]:
        request, cache = self._request, self._context.broker.fetch_sessions
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                cache.remove(request.session_id)
            asked = [Asked(topic, wanted) for topic, wanted in _named(request, by_id)]
            if request.session_epoch == INITIAL_EPOCH:
                distinct = {(each.topic, each.partition_id): each for each in asked}
                self._session = cache.create(len(distinct), privileged=self._replica_id >= 0, by_topic_id=by_id)
                if self._session is not None:
                    self._session.partitions = distinct
            return asked
        self._session = cache.resume(request.session_id, request.session_epoch, by_topic_id=by_id)
        self._session.update(_named(request, by_id), _forgotten(request, by_id))
        if not self._session.partitions:
            cache.remove(request.session_id)
            self._session = None
            return ()
        self._incremental = True
        return tuple(self._session.partitions.values())

    def read(self) -> None:
        """Read every partition once, within the limits."""
        self.answers.clear()
        self.partitions.clear()
        self.size_bytes, self.failed = 0, False
        context, request = self._context, self._request
        left = self._max_bytes
        self._image = context.broker.image
        counts, self._counts = self._counts, False
        clock, ends_ms = context.broker.clock, 0
        is_follower, passes_over = self._replica_id >= 0, self._may_pass_over(counts)
        read_ms = clock.monotonic_ms()
        for asked in self._asked:
            if passes_over and asked.settled is not None and self._is_passed_over(asked, counts, read_ms):
                self.partitions.append(asked.settled)
                continue
            answer = PartitionData(partition_index=asked.partition_id, aborted_transactions=None)
            self.answers.append((asked, answer))
            partition: Partition | None = None
            try:
                partition = self._partition(asked)
                if counts:
                    self._count(partition, asked)
                throttled = self._is_throttled(partition)
                if left and self.size_bytes:
                    now_ms = clock.monotonic_ms()
                    ends_ms = ends_ms or now_ms + READ_MS
                    left = left if now_ms < ends_ms else 0
                limit = 0 if throttled else min(asked.max_bytes, left)
                if self._sent_elsewhere(partition, asked, answer):
                    continue
                read = partition.read(
                    asked.fetch_offset,
                    max_bytes=limit,
                    at_least_one=not self.size_bytes and not throttled,
                    replica_id=self._replica_id,
                    isolation_level=request.isolation_level,
                    last_fetched_epoch=asked.last_fetched_epoch,
                )
            except (ApiError, StorageError) as error:
                if partition is not None and partition.is_being_repaired and _is_damage(error):
                    # What is damaged here is on its way from another replica: until then there is nothing new.
                    self.partitions.append(partition)
                    self._fill(answer, _nothing_of(partition))
                    continue
                self._fail(answer, error)
                continue
            self.partitions.append(partition)
            if self._tells_marks and read.high_watermark > asked.told_high_watermark:
                self.failed = True
            self.size_bytes += read.size_bytes
            if self._replica_id >= 0 and partition.throttled.as_leader:
                replicas = context.broker.replicas
                replicas.leader_quota.spend(read.size_bytes, context.broker.clock.monotonic_ms())
            left = max(0, left - read.size_bytes)
            self._fill(answer, read)
            if is_follower and read.diverging is None and not read.size_bytes:
                asked.settled = partition

    def _may_pass_over(self, counts: bool) -> bool:
        """Whether quiet partitions of a follower's session are passed over: an incremental answer names none of them.

        One whose registration is not the one that we know goes the whole way.
        """
        if not self._incremental or self._replica_id < 0 or self._is_stranger:
            return False
        broker = self._image.brokers.get(self._replica_id)
        return not counts or (broker is not None and broker.broker_epoch == self._replica_epoch)

    def _is_passed_over(self, asked: Asked, counts: bool, now_ms: int) -> bool:
        partition, offset = asked.settled, asked.fetch_offset
        assert partition is not None, "asked of settled ones only"
        epoch, watermark, start = asked.current_leader_epoch, asked.told_high_watermark, asked.told_log_start
        if not is_quiet(partition, epoch, offset, watermark, start):
            asked.settled = None
            return False
        return not counts or stays(
            partition,
            self._replica_id,
            fetch_offset=offset,
            log_start_offset=asked.log_start_offset,
            now_ms=now_ms,
            broker_epoch=self._replica_epoch,
        )

    def _partition(self, asked: Asked) -> Partition:
        """
        Raises:
            ApiError: unknown, not led here, or at another leader epoch.
        """
        context, image = self._context, self._image
        topic = asked.topic
        if isinstance(topic, str):
            partition = context.broker.replicas.find(topic, asked.partition_id, image)
        else:
            known = image.topics_by_id.get(topic)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = context.broker.replicas.find(known.name, asked.partition_id, image)
            if partition.topic_id != topic:
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if self._is_stranger:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "followers fetch where brokers talk to each other")
        if self._replica_id < 0 and context.api_version >= _FIRST_WITH_RACK:
            partition.check_epoch(asked.current_leader_epoch)
        else:
            partition.check_leader(asked.current_leader_epoch)
        return partition

    def _count(self, partition: Partition, asked: Asked) -> None:
        """A follower's fetch offset is its acknowledgement, where it says which life of its broker asks (KIP-903).

        An epoch that we have not heard of yet counts for nothing: it may be news, or anybody's invention.

        Raises:
            ApiError: as `Partition.follower_fetched`; NOT_LEADER_OR_FOLLOWER where the broker has registered again, or
                no epoch is given.
        """
        broker = self._image.brokers.get(self._replica_id)
        if broker is not None and self._replica_epoch < broker.broker_epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._replica_id} fetches with epoch {self._replica_epoch}, and is at {broker.broker_epoch}",
            )
        if broker is None or self._replica_epoch > broker.broker_epoch:
            partition.check_replica(self._replica_id, asked.current_leader_epoch)
            return
        partition.follower_fetched(
            self._replica_id,
            fetch_offset=asked.fetch_offset,
            log_start_offset=asked.log_start_offset,
            now_ms=self._context.broker.clock.monotonic_ms(),
            broker_epoch=self._replica_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            current_leader_epoch=asked.current_leader_epoch,
        )

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether a follower gets nothing of it for now (KIP-73). Who is in sync is not held back: it would fall."""
        if self._replica_id < 0 or not partition.throttled.as_leader or self._replica_id in partition.isr:
            return False
        broker = self._context.broker
        return broker.replicas.leader_quota.is_exhausted(broker.clock.monotonic_ms())

    def _sent_elsewhere(self, partition: Partition, asked: Asked, answer: PartitionData) -> bool:
        """Whether a consumer is sent to a replica in its own rack (KIP-392)."""
        context, rack = self._context, self._request.rack_id
        select = context.broker.replicas.selector
        if select is None or not rack or self._replica_id >= 0 or not partition.is_leader:
            return False
        if context.api_version < _FIRST_WITH_RACK:
            return False
        chosen = partition.preferred_read_replica(select, rack, asked.fetch_offset, self._rack_of)
        if chosen is None:
            return False
        log = partition.log
        answer.preferred_read_replica = chosen
        answer.high_watermark, answer.log_start_offset = log.high_watermark, log.log_start_offset
        answer.last_stable_offset = log.last_stable_offset
        answer.records = b""
        self.failed = True
        return True

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self._image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    def _fill(self, answer: PartitionData, read: PartitionRead) -> None:
        answer.high_watermark = read.high_watermark
        answer.last_stable_offset = read.last_stable_offset
        answer.log_start_offset = read.log_start_offset
        if read.diverging is not None:
            answer.diverging_epoch = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
            self.failed = True
        if read.aborted_transactions is not None:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in read.aborted_transactions
            ]
        answer.records = RecordsChunks(read.chunks, read.size_bytes) if read.size_bytes else b""

    def _fail(self, answer: PartitionData, error: ApiError | StorageError) -> None:
        if isinstance(error, StorageError) or error.code not in _NOT_THERE or self._replica_id >= 0:
            self.failed = True
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
        answer.records = b""
        if isinstance(error, StorageError):
            self._context.broker.replicas.storage_failed(error)
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            answer.error_code = error.code

    def is_enough(self) -> bool:
        """Whether this is to be answered now."""
        return self.failed or self.size_bytes >= self._min_bytes or not self.partitions

    def park(self) -> asyncio.Future[FetchResponse]:
        """Wait for data, until the deadline; cancelled where the client goes away."""
        done: asyncio.Future[FetchResponse] = asyncio.get_running_loop().create_future()
        replicas = self._context.broker.replicas
        replicas.parked_fetch_count += 1
        wait: DataWait | None = None

        def wait_more() -> None:
            nonlocal wait
            self.answers.clear()  # what was read is read again: hold no files over the wait
            left_ms = self._deadline_ms - self._context.broker.clock.monotonic_ms()
            wait = DataWait(
                self.partitions,
                missing_bytes=self._min_bytes - self.size_bytes,
                timeout_ms=max(0, left_ms),
                replica=self._replica_id >= 0,
                committed_only=self._request.isolation_level == 1,
                marks=self._tells_marks,
            )
            wait.future.add_done_callback(woken)

        def hurry() -> None:
            if not done.done():
                self.read()
                done.set_result(self.response())

        def woken(_: asyncio.Future[None]) -> None:
            if done.done():
                return
            try:
                self.read()
                late = self._context.broker.clock.monotonic_ms() >= self._deadline_ms
                if self.is_enough() or late:
                    done.set_result(self.response())
                else:
                    wait_more()
            except Exception as error:
                done.set_exception(error)

        def ended(_: asyncio.Future[FetchResponse]) -> None:
            replicas.parked_fetch_count -= 1
            if self._session is not None:
                self._session.hurry = _nothing
            if wait is not None:
                wait.wake()

        done.add_done_callback(ended)
        if self._session is not None:
            self._session.hurry = hurry
        wait_more()
        return done

    def response(self) -> FetchResponse:
        """The answer, in the terms of its session."""
        session = self._session
        response = FetchResponse(session_id=NO_SESSION if session is None else session.session_id)
        topic: FetchableTopicResponse | None = None
        last: TopicKey | None = None
        gave: list[PartitionKey] = []
        for asked, answer in self.answers:
            news = session is None or asked.is_news(answer)
            if self._incremental and not news:
                continue
            if answer.error_code in _HINTED and self._context.api_version >= _FIRST_WITH_LEADERS:
                self._hint(asked, answer, response)
            if isinstance(answer.records, RecordsChunks):
                gave.append((asked.topic, asked.partition_id))
            if topic is None or asked.topic != last:
                last = asked.topic
                topic = FetchableTopicResponse()
                if isinstance(last, str):
                    topic.topic = last
                else:
                    topic.topic_id = last
                response.responses.append(topic)
            topic.partitions.append(answer)
        if session is not None:
            for key in gave:
                session.gave_records(key)
        self._context.broker.metrics.fetched(self.size_bytes)
        return response

    def _hint(self, asked: Asked, answer: PartitionData, response: FetchResponse) -> None:
        known = None if isinstance(asked.topic, str) else self._image.topics_by_id.get(asked.topic)
        name = asked.topic if isinstance(asked.topic, str) else known.name if known is not None else ""
        hint = leader_hint(self._image, name, asked.partition_id, self._context.listener_name)
        if hint is None:
            return
        leader_id, epoch, endpoint = hint
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
        if self._context.api_version >= 16 and all(node.node_id != leader_id for node in response.node_endpoints):
            response.node_endpoints.append(NodeEndpoint(node_id=leader_id, host=endpoint.host, port=endpoint.port))


def _nothing() -> None:
    pass


def _named(request: FetchRequest, by_id: bool) -> Iterable[tuple[TopicKey, object]]:
    for topic in request.topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for wanted in topic.partitions:
            yield key, wanted


def _forgotten(request: FetchRequest, by_id: bool) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for partition_id in topic.partitions:
            yield key, partition_id
