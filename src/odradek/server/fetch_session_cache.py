"""Incremental fetch sessions (KIP-227): the broker keeps the partitions of a client, which then sends only changes.

Pure: no clock, no socket. A session keeps its partitions in the order of reading. Partitions that returned records move
to the end, so that a small max_bytes reaches each in turn. An incremental response has only the partitions with
records, errors, or changed offsets. `max.incremental.fetch.session.cache.slots` bounds the cache: a new session evicts
one that was unused for EVICTION_MS, or a smaller one that is older than EVICTION_MS; if there is none, the client gets
no session and sends full requests. So does a client that names far more partitions than the cluster has, whose session
would only hold memory. A partition that a request names again is read once, as its last naming has it, as in Kafka.
Source: Kafka FetchSessionCache.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT32_MAX
from odradek.common.turns import PARTITIONS_PER_TURN
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from random import Random

    from odradek.protocol.messages.fetch_request import FetchRequest
    from odradek.replica.partition import Partition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = INT32_MAX
# Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
EVICTION_MS = 120_000
# By how many partitions a session may have more than the cluster.
MOST_UNKNOWN = 2000

T = TypeVar("T")
# A topic as the request's version names it: the id from 13 on, the name before.
TopicKey = str | UUID
PartitionKey = tuple[TopicKey, int]
# The session, None if there is none; the partitions to read; whether the request is incremental.
Resolved = tuple["FetchSession | None", "tuple[CachedPartition, ...]", bool]


@config
class FetchSessionConfig:
    """The limit of fetch sessions of a broker."""

    slots: int = option(
        "max.incremental.fetch.session.cache.slots",
        default=1000,
        unit="count",
        doc="Maximum fetch sessions; further readers send full Fetch requests.",
    )


class CachedPartition:
    """One partition of a session: the client's last request, and the offsets of the last response.

    `caught_up_partition` is set while a follower has all records, for `replica.unchanged`; else None.
    """

    __slots__ = (
        "caught_up_partition",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition_id",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(self, topic: TopicKey, requested: Any) -> None:
        """`requested` is a FetchPartition of the request."""
        self.topic = topic
        self.partition_id: int = requested.partition
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.update(requested)

    def update(self, requested: Any) -> None:
        """Apply a new request for the partition."""
        self.caught_up_partition: Partition | None = None
        self.fetch_offset: int = requested.fetch_offset
        self.max_bytes: int = requested.partition_max_bytes
        self.current_leader_epoch: int = requested.current_leader_epoch
        self.last_fetched_epoch: int = requested.last_fetched_epoch
        self.log_start_offset: int = requested.log_start_offset

    def must_respond(self, answer: Any) -> bool:
        """Whether an incremental response must include this partition; records what is sent."""
        news = bool(answer.error_code) or _has_records(answer) or answer.diverging_epoch.epoch >= 0
        if answer.high_watermark != self.sent_high_watermark:
            self.sent_high_watermark, news = answer.high_watermark, True
        if answer.log_start_offset != self.sent_log_start:
            self.sent_log_start, news = answer.log_start_offset, True
        if answer.preferred_read_replica != -1:
            news = True
        if answer.error_code:
            # The response that follows an error must include the partition.
            self.sent_high_watermark = -1
        return news


def _has_records(answer: Any) -> bool:
    records = answer.records
    return records is not None and bool(getattr(records, "size_bytes", 0) or (isinstance(records, bytes) and records))


class FetchSession:
    """The partitions of one client, in the order of reading."""

    __slots__ = (
        "_complete_parked",
        "by_topic_id",
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "privileged",
        "session_id",
    )

    def __init__(self, session_id: int, *, privileged: bool, by_topic_id: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.privileged = privileged  # a follower's
        self.by_topic_id = by_topic_id
        self.epoch = 1
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self._complete_parked: Callable[[], None] | None = None

    def park(self, answer: Callable[[], None]) -> None:
        """Register the parked request; `answer` completes it with the data that exists."""
        self._complete_parked = answer

    def unpark(self, answer: Callable[[], None]) -> None:
        """Remove the parked request, unless a newer one has replaced it."""
        if self._complete_parked == answer:
            self._complete_parked = None

    def complete_parked(self) -> None:
        """Complete the parked request, if there is one, with the data that exists."""
        if self._complete_parked is not None:
            self._complete_parked()

    def update(self, topics: Iterable[tuple[TopicKey, Any]], forgotten: Iterable[PartitionKey]) -> None:
        """Add, change and remove partitions as the request names them."""
        for topic, requested in topics:
            cached = self.partitions.get((topic, requested.partition))
            if cached is None:
                self.partitions[topic, requested.partition] = CachedPartition(topic, requested)
            else:
                cached.update(requested)
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, *keys: PartitionKey) -> None:
        """Move partitions to the end, so that the others are read first next time."""
        for key in keys:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                self.partitions[key] = cached


class FetchSessionCache:
    """All sessions of a broker."""

    def __init__(self, config: FetchSessionConfig, random: Random, now_ms: Callable[[], int]) -> None:
        """`now_ms` is monotonic."""
        self._slots = config.slots
        self._random = random
        self._now_ms = now_ms
        self._sessions: dict[int, FetchSession] = {}
        self.evicted_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def resolve(
        self, request: FetchRequest, existing: Callable[[], int], *, by_id: bool, is_follower: bool
    ) -> Resolved:
        """Resolve a request.

        Args:
            existing: returns the number of partitions of the cluster.

        Raises:
            ApiError: as `resume`.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            distinct = {
                (topic, requested.partition): CachedPartition(topic, requested)
                for topic, requested in _requested_partitions(request, by_id)
            }
            if request.session_epoch == FINAL_EPOCH and request.session_id == NO_SESSION:
                return None, tuple(distinct.values()), False
            return self._begin(request, distinct, existing, by_id=by_id, is_follower=is_follower)
        session = self.resume(request.session_id, request.session_epoch, by_topic_id=by_id)
        session.update(_requested_partitions(request, by_id), _forgotten_partitions(request, by_id))
        return self._continue(session, existing)

    def resolve_steps(
        self, request: FetchRequest, existing: Callable[[], int], *, by_id: bool, is_follower: bool
    ) -> Generator[None, None, Resolved]:
        """As `resolve`, in several steps."""
        slices = _in_slices(_requested_partitions(request, by_id))
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            distinct: dict[PartitionKey, CachedPartition] = {}
            for some in slices:
                distinct.update(((topic, each.partition), CachedPartition(topic, each)) for topic, each in some)
                yield
            return self._begin(request, distinct, existing, by_id=by_id, is_follower=is_follower)
        session = self.resume(request.session_id, request.session_epoch, by_topic_id=by_id)
        for some in slices:
            session.update(some, ())
            yield
        for forgotten in _in_slices(_forgotten_partitions(request, by_id)):
            session.update((), forgotten)
            yield
        return self._continue(session, existing)

    def _begin(
        self,
        request: FetchRequest,
        partitions: dict[PartitionKey, CachedPartition],
        existing: Callable[[], int],
        *,
        by_id: bool,
        is_follower: bool,
    ) -> Resolved:
        if request.session_id != NO_SESSION:
            self.remove(request.session_id)
        created: FetchSession | None = None
        if request.session_epoch != FINAL_EPOCH and not _is_excessive(partitions, existing):
            created = self.create(len(partitions), privileged=is_follower, by_topic_id=by_id)
        if created is not None:
            created.partitions = partitions
        return created, tuple(partitions.values()), False

    def _continue(self, session: FetchSession, existing: Callable[[], int]) -> Resolved:
        partitions = tuple(session.partitions.values())
        if not partitions or _is_excessive(session.partitions, existing):
            self.remove(session.session_id)
            return None, partitions, False
        return session, partitions, True

    def resume(self, session_id: int, epoch: int, *, by_topic_id: bool) -> FetchSession:
        """Find the session of an incremental request and advance its epoch.

        Raises:
            ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"expected {session.epoch}, got {epoch}")
        if session.by_topic_id != by_topic_id:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # A client that sends a request before it has the response gets that response now.
        session.complete_parked()
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = self._now_ms()
        return session

    def create(self, partition_count: int, *, privileged: bool, by_topic_id: bool) -> FetchSession | None:
        """Create a session of so many partitions; None where the cache is full and no session may be evicted."""
        if self._slots <= 0:
            return None
        if len(self._sessions) >= self._slots and not self._evict(partition_count, privileged):
            return None
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = FetchSession(session_id, privileged=privileged, by_topic_id=by_topic_id, now_ms=self._now_ms())
        self._sessions[session_id] = session
        return session

    def remove(self, session_id: int) -> bool:
        """Remove a session; returns whether it existed."""
        return self._sessions.pop(session_id, None) is not None

    def _evict(self, partition_count: int, privileged: bool) -> bool:
        now = self._now_ms()
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now - oldest.last_used_ms <= EVICTION_MS:
            evictable = [s for s in self._sessions.values() if now - s.created_ms > EVICTION_MS]
            oldest = min(evictable, key=_eviction_rank, default=oldest)
            if not evictable or _eviction_rank(oldest) >= (privileged, partition_count):
                return False
        del self._sessions[oldest.session_id]
        self.evicted_count += 1
        return True


def _eviction_rank(session: FetchSession) -> tuple[bool, int]:
    return (session.privileged, len(session.partitions))


def _is_excessive(partitions: Collection[PartitionKey], existing: Callable[[], int]) -> bool:
    """Whether a session would have so many more partitions than the cluster that no client needs it."""
    return len(partitions) > MOST_UNKNOWN and len(partitions) > existing() + MOST_UNKNOWN


def _in_slices(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    remaining = iter(items)
    while some := tuple(islice(remaining, PARTITIONS_PER_TURN)):
        yield some


def _requested_partitions(request: FetchRequest, by_id: bool) -> Iterable[tuple[TopicKey, Any]]:
    for topic in request.topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for requested in topic.partitions:
            yield key, requested


def _forgotten_partitions(request: FetchRequest, by_id: bool) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for partition_id in topic.partitions:
            yield key, partition_id
