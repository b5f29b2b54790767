"""Fetch: key 1, versions 4-18, for consumers and for followers alike.

Behaviour: reads each partition from its fetch offset to the reader's end (high watermark, last stable offset for
READ_COMMITTED, log end offset for followers), in the order of the request or session. The first batch of the first
partition that has one is returned even where it is larger than the limits (KIP-74). A response waits for min_bytes, or
for max_bytes where that is less, up to max_wait_ms; an error of an existing partition ends the wait. A follower's fetch
offset is its acknowledgement.

A consumer above its quota gets an empty response with throttle_time_ms, and its session does not change (KIP-219).

`handle` reads at once, in the order of the requests; a long poll is a future that an append completes (no timer scan).
Records are slices of the log's files and are not copied; the log verifies those that were on disk before this start.
A leader may send a consumer to a replica in its rack (KIP-392), and a follower serves consumers from version 11 on, up
to the high watermark that it knows.

Versions: 7 sessions (KIP-227); 9 leader epoch fencing (KIP-320); 11 rack; 12 flexible, divergence by last_fetched_epoch
(KIP-595), leader hints (KIP-951); 13 topic ids (KIP-516); 15 replica state with broker epoch (KIP-903); 16 node
endpoints; 17 directory ids; 18 the follower's high watermark.

A Fetch with a replica id is a follower's. Only brokers may send it (`server.authorization.may_act_as_broker`; others
get TOPIC_AUTHORIZATION_FAILED), and it acknowledges records only with that broker's registered epoch.

Permissions: ClusterAction for followers; Read on each topic for consumers, checked before the topic's existence.

Not done: tiered storage.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence, Set
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.metrics import Given
from odradek.common.turns import PARTITIONS_PER_TURN
from odradek.protocol.codec import RecordsChunks
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.replica.partition import READ_COMMITTED
from odradek.replica.partition_read import PartitionRead, nothing_of
from odradek.server.authorization import check_may_read, may_act_as_broker
from odradek.server.fetch_session_cache import (
    NO_SESSION,
    CachedPartition,
    FetchSession,
    PartitionKey,
    Resolved,
    TopicKey,
)
from odradek.server.follower_fetch import FollowerFetch
from odradek.server.log_creation import after_logs_created, logs_pending
from odradek.server.long_fetch import handle_in_turns, names_many
from odradek.server.long_poll import LongPoll, read_or_wait
from odradek.server.partition_errors import name_leader, set_fetch_error
from odradek.server.preferred_replica import FIRST_WITH_RACK, redirect_to_preferred_replica

if TYPE_CHECKING:
    from odradek.replica.partition import Partition
    from odradek.server.context import RequestContext

_FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_REPLICA_STATE = 15
# A request may have thousands of partitions. After this time the rest get their offsets and no records, as if
# max_bytes were reached, so that one request does not block the event loop.
READ_MS = 20
# These errors do not end a consumer's long poll, or a consumer of a topic that was just deleted would send requests
# without pause. A follower gets them at once: it backs off by itself, and may know a new topic before this broker does.
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def _is_damage(error: ApiError | StorageError) -> bool:
    return isinstance(error, ApiError) and error.code is ErrorCode.CORRUPT_MESSAGE


def handle(
    context: RequestContext, request: FetchRequest
) -> FetchResponse | LongPoll | Coroutine[Any, Any, FetchResponse | LongPoll]:
    """Read the partitions; returns the response where that is enough data, else a long poll."""
    if context.broker.replicas.is_creating_logs and logs_pending(
        context, (topic.partitions for topic in request.topics)
    ):
        if max(request.replica_id, request.replica_state.replica_id) >= 0:
            context.payer = None
        return after_logs_created(context, request, handle)
    fetch = PendingFetch(context, request)
    if context.times is not None and fetch.is_follower:
        context.times.count_as_follower()
    if names_many(request):
        return handle_in_turns(context.broker, fetch, is_resolved=False)
    try:
        fetch.resolve()
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    if fetch.is_long:
        return handle_in_turns(context.broker, fetch, is_resolved=True)
    return read_or_wait(context.broker, fetch)


class PendingFetch:
    """One Fetch request that is not yet answered; each wake-up of its long poll reads all partitions again.

    Attributes:
        responses: the partitions' responses, in order; a follower's session has none for partitions without news.
        partitions: the partitions that were read and whose new data the long poll waits for.
        respond_now: a partition has an error or a new offset, which ends the wait for records.
        wakes_on_high_watermark: a high watermark that advanced ends the wait, too.
    """

    __slots__ = (
        "_bytes_left",
        "_context",
        "_decided",
        "_follower",
        "_image",
        "_is_first_read",
        "_is_incremental",
        "_is_unauthorized",
        "_max_bytes",
        "_min_bytes",
        "_read_at_ms",
        "_read_ends_ms",
        "_readable",
        "_replica_id",
        "_selects_replica",
        "deadline_ms",
        "is_by_id",
        "partitions",
        "request",
        "requested",
        "respond_now",
        "responses",
        "session",
        "size_bytes",
        "wakes_on_high_watermark",
    )

    def __init__(self, context: RequestContext, request: FetchRequest) -> None:
        """A request whose partitions are yet to be resolved."""
        self._context = context
        self.request = request
        self.is_by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
        self._image = context.broker.image
        self._replica_id, replica_epoch = request.replica_id, -1
        if context.api_version >= _FIRST_WITH_REPLICA_STATE:
            self._replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        self._follower: FollowerFetch | None = None
        self._is_unauthorized = False
        # Topics that the consumer may read, None if there is no authorizer; and what it decided about others.
        self._readable: Set[str] | None = None
        authorizer = context.broker.authorizer
        if self._replica_id >= 0:
            context.payer = None  # as in Kafka, a Fetch with a replica id counts for no quota of clients
            self._follower = FollowerFetch(context.broker, self._replica_id, replica_epoch)
            # Checked once per request: a follower's session may have thousands of partitions.
            self._is_unauthorized = not may_act_as_broker(context)
        elif authorizer is not None:
            self._readable = context.readable_topics(authorizer)
            self._decided: dict[str, bool] = {}
        self.deadline_ms = context.broker.clock.monotonic_ms() + max(0, request.max_wait_ms)
        max_bytes = request.max_bytes
        if self._replica_id < 0:
            max_bytes = min(max_bytes, context.broker.replicas.fetch_max_bytes)
        payer = context.payer
        if payer is not None and payer.max_fetch_bytes < max_bytes:
            max_bytes = payer.max_fetch_bytes
        # A min_bytes above max_bytes can never be reached: every response would wait for max_wait_ms.
        self._max_bytes, self._min_bytes = max_bytes, min(request.min_bytes, max_bytes)
        self.session: FetchSession | None = None
        self.requested: tuple[CachedPartition, ...] = ()
        self._is_incremental = False
        # Only the first read acknowledges: a long poll may be read again long after its follower has died.
        self._is_first_read = True
        # Followers that serve consumers get an advanced high watermark at once, without waiting for data.
        serves_consumers = context.broker.replicas.selector is not None
        self.wakes_on_high_watermark = self._replica_id >= 0 and serves_consumers
        self._selects_replica = self._replica_id < 0 and serves_consumers
        self._bytes_left, self._read_at_ms, self._read_ends_ms = max_bytes, 0, 0
        self.responses: list[tuple[CachedPartition, PartitionData]] = []
        self.partitions: list[Partition] = []
        self.size_bytes = 0
        self.respond_now = False

    def resolve(self) -> None:
        """Find the session and the partitions to read.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        self.resolved(
            self._context.broker.fetch_sessions.resolve(
                self.request, self.existing_partitions, by_id=self.is_by_id, is_follower=self._replica_id >= 0
            )
        )

    def resolved(self, resolved: Resolved) -> None:
        """Use the session and the partitions that were found."""
        self.session, self.requested, self._is_incremental = resolved
        if self.session is None:
            self.wakes_on_high_watermark = False

    def existing_partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self._image.topics_by_name.values())

    @property
    def is_long(self) -> bool:
        """Whether it is read in several turns. Followers are not: a broker has so many partitions, and skips most."""
        return len(self.requested) > PARTITIONS_PER_TURN and (self._follower is None or self._is_unauthorized)

    def read(self) -> None:
        """Read every partition once, within the limits."""
        self.responses.clear()
        self.partitions.clear()
        self.size_bytes, self.respond_now = 0, False
        self._bytes_left, self._read_ends_ms = self._max_bytes, 0
        self._image = self._context.broker.image
        is_first, self._is_first_read = self._is_first_read, False
        follower, now_ms = self._follower, self._context.broker.clock.monotonic_ms()
        self._read_at_ms = now_ms
        skipping = self._skips_unchanged(is_first)
        for requested in self.requested:
            if skipping is not None and requested.caught_up_partition is not None:
                caught_up_partition = skipping.unchanged_partition(requested, now_ms, acknowledges=is_first)
                if caught_up_partition is not None:
                    self.partitions.append(caught_up_partition)
                    continue
            self.read_partition(requested, follower if is_first else None)

    def _skips_unchanged(self, is_first: bool) -> FollowerFetch | None:
        """The follower whose partitions without news are skipped, as an incremental response omits them; else None.

        A first read of a follower whose broker epoch is not the registered one skips none.
        """
        follower = self._follower
        if follower is None or not self._is_incremental or self._is_unauthorized:
            return None
        return follower if not is_first or follower.is_registered(self._image) else None

    def read_partition(self, requested: CachedPartition, acknowledging: FollowerFetch | None) -> None:
        """Read one partition, and add what is found to the responses."""
        data = PartitionData(partition_index=requested.partition_id, aborted_transactions=None)
        self.responses.append((requested, data))
        partition: Partition | None = None
        try:
            partition = self._partition(requested)
            if acknowledging is not None:
                acknowledging.acknowledge(self._image, partition, requested)
            if self._selects_replica and redirect_to_preferred_replica(
                self._context, self.request.rack_id, partition, requested.fetch_offset, data
            ):
                self.respond_now = True
                return
            read = self._read_records(partition, requested)
        except (ApiError, StorageError) as error:
            if partition is not None and partition.is_being_repaired and _is_damage(error):
                # The damaged batches are being fetched from another replica: until then there is no new data.
                self.partitions.append(partition)
                self._fill(data, nothing_of(partition.log))
            else:
                if partition is not None:
                    self._context.broker.metrics.fetch_failed(partition.topic)
                self._set_error(data, error)
            return
        self.partitions.append(partition)
        self._fill(data, read)
        self._record_read(partition, requested, read)

    def _read_records(self, partition: Partition, requested: CachedPartition) -> PartitionRead:
        """Raises as `Partition.read`."""
        is_throttled = self._follower is not None and self._follower.is_throttled(partition)
        if self._bytes_left and self.size_bytes:
            now_ms = self._context.broker.clock.monotonic_ms()
            self._read_ends_ms = self._read_ends_ms or now_ms + READ_MS
            self._bytes_left = self._bytes_left if now_ms < self._read_ends_ms else 0
        return partition.read(
            requested.fetch_offset,
            max_bytes=0 if is_throttled else min(requested.max_bytes, self._bytes_left),
            at_least_one=not self.size_bytes and not is_throttled,
            replica_id=self._replica_id,
            isolation_level=self.request.isolation_level,
            last_fetched_epoch=requested.last_fetched_epoch,
        )

    def _record_read(self, partition: Partition, requested: CachedPartition, read: PartitionRead) -> None:
        """Count the bytes read from a partition, and remember that a follower has all its records."""
        self.size_bytes += read.size_bytes
        self._bytes_left = max(0, self._bytes_left - read.size_bytes)
        follower = self._follower
        if follower is None:
            return
        if self.wakes_on_high_watermark and read.high_watermark > requested.sent_high_watermark:
            self.respond_now = True
        follower.charge_quota(partition, read.size_bytes)
        if read.diverging is None and not read.size_bytes:
            requested.caught_up_partition = partition

    def _partition(self, requested: CachedPartition) -> Partition:
        """
        Raises:
            ApiError: the partition is unknown, the client may not read it, this broker may not serve it, or its leader
                epoch is another.
        """
        context, image = self._context, self._image
        topic = requested.topic
        if self._is_unauthorized:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "followers fetch where brokers talk to each other")
        readable = self._readable
        if isinstance(topic, str):
            if readable is not None and topic not in readable:
                check_may_read(context, topic, self._decided)
            partition = context.broker.replicas.find(topic, requested.partition_id, image)
        else:
            known = image.topics_by_id.get(topic)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            if readable is not None and known.name not in readable:
                check_may_read(context, known.name, self._decided)
            partition = context.broker.replicas.find(known.name, requested.partition_id, image)
            if partition.topic_id != topic:
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if self._replica_id < 0 and context.api_version >= FIRST_WITH_RACK:
            partition.check_epoch(requested.current_leader_epoch)
        else:
            partition.check_leader(requested.current_leader_epoch)
        return partition

    def _fill(self, data: PartitionData, read: PartitionRead) -> None:
        data.high_watermark = read.high_watermark
        data.last_stable_offset = read.last_stable_offset
        data.log_start_offset = read.log_start_offset
        if read.diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
            self.respond_now = True
        if read.aborted_transactions is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in read.aborted_transactions
            ]
        data.records = RecordsChunks(read.chunks, read.size_bytes) if read.size_bytes else b""

    def _set_error(self, data: PartitionData, error: ApiError | StorageError) -> None:
        if isinstance(error, StorageError) or error.code not in _UNKNOWN_TOPIC or self._replica_id >= 0:
            self.respond_now = True
        set_fetch_error(self._context, data, error)

    @property
    def is_follower(self) -> bool:
        return self._replica_id >= 0

    @property
    def reads_committed(self) -> bool:
        return self.request.isolation_level == READ_COMMITTED

    @property
    def missing_bytes(self) -> int:
        """The number of bytes that are missing for min_bytes."""
        return self._min_bytes - self.size_bytes

    def is_satisfied(self) -> bool:
        """Whether the request can be answered now."""
        return self.respond_now or self.size_bytes >= self._min_bytes or not self.partitions

    def is_late(self) -> bool:
        """Whether it is answered now with the data that exists."""
        return self._context.broker.clock.monotonic_ms() >= self.deadline_ms

    def response(self) -> FetchResponse:
        """The response with what was just read; in an incremental session, only the partitions that changed.

        It has no partitions where a quota throttles the client.
        """
        session, payer = self.session, self._context.payer
        if payer is not None and payer.fetch is not None:
            throttle_ms = payer.fetch.pay_unless_owing(self.size_bytes, self._read_at_ms)
            if throttle_ms:
                return self._throttled(throttle_ms)
        response = FetchResponse(session_id=NO_SESSION if session is None else session.session_id)
        self.respond_each(self.responses, response)
        self._context.broker.metrics.fetched(self.size_bytes, is_follower=self.is_follower)
        return response

    def respond_each(
        self,
        responses: Sequence[tuple[CachedPartition, PartitionData]],
        response: FetchResponse,
    ) -> None:
        session, metrics = self.session, self._context.broker.metrics
        with_records: list[PartitionKey] = []
        by_topic = metrics.replicated if self.is_follower else metrics.consumed
        for requested, data in responses:
            must_respond = session is None or requested.must_respond(data)
            if not must_respond and self._is_incremental:
                continue
            if data.error_code:
                name_leader(self._context, response, requested.topic, data)
            if isinstance(data.records, RecordsChunks):
                with_records.append((requested.topic, requested.partition_id))
                given = by_topic.get(requested.topic)
                if given is None:
                    given = by_topic[requested.topic] = Given()
                given.bytes += data.records.size_bytes
                given.answers += 1
            _topic_of(response, requested.topic).partitions.append(data)
        if session is not None:
            session.move_to_end(*with_records)

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        self._context.throttle(throttle_ms)
        session_id = NO_SESSION
        if self.session is not None and self._is_incremental:
            session_id = self.session.session_id
        elif self.session is not None:
            self._context.broker.fetch_sessions.remove(self.session.session_id)
        return FetchResponse(session_id=session_id, throttle_time_ms=throttle_ms)


def _topic_of(response: FetchResponse, key: TopicKey) -> FetchableTopicResponse:
    """The response's last topic where it is this one, else a new one: partitions keep the order of the request."""
    if response.responses and key in (response.responses[-1].topic, response.responses[-1].topic_id):
        return response.responses[-1]
    topic = FetchableTopicResponse(topic=key) if isinstance(key, str) else FetchableTopicResponse(topic_id=key)
    response.responses.append(topic)
    return topic
