"""Incremental fetch sessions (KIP-227): what a reader asked for last time, so that it need not say so again.

Pure: no clock, no socket. A session holds a reader's partitions in the order in which they are read; those that gave
records go to the end, so that with a small max_bytes every partition has its turn. An incremental answer names only
partitions with records, errors, or changed marks. The cache is bounded (`max.incremental.fetch.session.cache.slots`): a
new session takes the place of one that is unused for EVICTION_MS, or of a smaller one that had its time; where there is
none, the reader gets no session and repeats itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.numbers import INT32_MAX
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

# A topic as the request's version names it: the id from 13 on, the name before.
TopicKey = str | UUID
PartitionKey = tuple[TopicKey, int]


@config
class FetchSessionConfig:
    """How many fetch sessions a broker keeps."""

    slots: int = option(
        "max.incremental.fetch.session.cache.slots",
        default=1000,
        unit="count",
        doc="Maximum fetch sessions; further readers send full Fetch requests.",
    )


class CachedPartition:
    """One partition as a reader asks for it, and what it was sent last.

    `quiet` is the partition in which a follower was found to have all there is, since it asked (`replica.quiet`).
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition_id",
        "quiet",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(self, topic: TopicKey, wanted: Any) -> None:
        """`wanted` is a FetchPartition of the request."""
        self.topic = topic
        self.partition_id: int = wanted.partition
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.update(wanted)

    def update(self, wanted: Any) -> None:
        """The reader asks again."""
        self.quiet: Partition | None = None
        self.fetch_offset: int = wanted.fetch_offset
        self.max_bytes: int = wanted.partition_max_bytes
        self.current_leader_epoch: int = wanted.current_leader_epoch
        self.last_fetched_epoch: int = wanted.last_fetched_epoch
        self.log_start_offset: int = wanted.log_start_offset

    def must_respond(self, answer: Any) -> bool:
        """Whether an incremental answer must name this partition; remembers what is sent."""
        news = bool(answer.error_code) or _has_records(answer) or answer.diverging_epoch.epoch >= 0
        if answer.high_watermark != self.sent_high_watermark:
            self.sent_high_watermark, news = answer.high_watermark, True
        if answer.log_start_offset != self.sent_log_start:
            self.sent_log_start, news = answer.log_start_offset, True
        if answer.preferred_read_replica != -1:
            news = True
        if answer.error_code:
            # An error is sent until it is over: the marks of the next good answer must count as changed.
            self.sent_high_watermark = -1
        return news


def _has_records(answer: Any) -> bool:
    records = answer.records
    return records is not None and bool(getattr(records, "size_bytes", 0) or (isinstance(records, bytes) and records))


class FetchSession:
    """One reader's partitions."""

    __slots__ = (
        "_answer_parked",
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
        self._answer_parked: Callable[[], None] | None = None

    def park(self, answer: Callable[[], None]) -> None:
        """A request waits for data; `answer` gives it what there is."""
        self._answer_parked = answer

    def unpark(self, answer: Callable[[], None]) -> None:
        """That request waits no more; another one may have come in its place."""
        if self._answer_parked == answer:
            self._answer_parked = None

    def answer_parked(self) -> None:
        """Answer the request that waits for data, where one does, with what there is."""
        if self._answer_parked is not None:
            self._answer_parked()

    def update(self, topics: Iterable[tuple[TopicKey, Any]], forgotten: Iterable[PartitionKey]) -> None:
        """Add and change what the request names, drop what it forgets."""
        for topic, wanted in topics:
            asked = self.partitions.get((topic, wanted.partition))
            if asked is None:
                self.partitions[topic, wanted.partition] = CachedPartition(topic, wanted)
            else:
                asked.update(wanted)
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, *keys: PartitionKey) -> None:
        """Let the others come first next time."""
        for key in keys:
            asked = self.partitions.pop(key, None)
            if asked is not None:
                self.partitions[key] = asked


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
        self, request: FetchRequest, *, by_id: bool, is_follower: bool
    ) -> tuple[FetchSession | None, Iterable[CachedPartition], bool]:
        """What a request asks for: (its session where it has one, the partitions to read, whether it names changes).

        Raises:
            ApiError: as `resume`.
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self.remove(request.session_id)
            asked = [CachedPartition(topic, wanted) for topic, wanted in _named(request, by_id)]
            if request.session_epoch == FINAL_EPOCH:
                return None, asked, False
            distinct = {(each.topic, each.partition_id): each for each in asked}
            created = self.create(len(distinct), privileged=is_follower, by_topic_id=by_id)
            if created is not None:
                created.partitions = distinct
            return created, asked, False
        session = self.resume(request.session_id, request.session_epoch, by_topic_id=by_id)
        session.update(_named(request, by_id), _forgotten(request, by_id))
        if not session.partitions:
            self.remove(request.session_id)
            return None, (), False
        return session, tuple(session.partitions.values()), True

    def resume(self, session_id: int, epoch: int, *, by_topic_id: bool) -> FetchSession:
        """The session of an incremental request, moved on by one epoch.

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
        # A client that asks again before the response has a new request: what waits is answered with what there is.
        session.answer_parked()
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = self._now_ms()
        return session

    def create(self, partition_count: int, *, privileged: bool, by_topic_id: bool) -> FetchSession | None:
        """A new session with room for that many partitions, or None where no other may be evicted for it."""
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
        """Forget a session; returns whether it was there."""
        return self._sessions.pop(session_id, None) is not None

    def _evict(self, partition_count: int, privileged: bool) -> bool:
        now = self._now_ms()
        oldest = min(self._sessions.values(), key=lambda session: session.last_used_ms)
        if now - oldest.last_used_ms <= EVICTION_MS:
            caught_up_partition = [s for s in self._sessions.values() if now - s.created_ms > EVICTION_MS]
            oldest = min(caught_up_partition, key=_worth, default=oldest)
            if not caught_up_partition or _worth(oldest) >= (privileged, partition_count):
                return False
        del self._sessions[oldest.session_id]
        self.evicted_count += 1
        return True


def _worth(session: FetchSession) -> tuple[bool, int]:
    return (session.privileged, len(session.partitions))


def _named(request: FetchRequest, by_id: bool) -> Iterable[tuple[TopicKey, Any]]:
    for topic in request.topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for wanted in topic.partitions:
            yield key, wanted


def _forgotten(request: FetchRequest, by_id: bool) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for partition_id in topic.partitions:
            yield key, partition_id
