"""What a follower asks its leader for, and what it does with the answers: one object for each connection to a leader.

Pure: time is an argument, `fetcher_manager` does the I/O. A partition that is followed is in one of these states:

- FETCHING: asked for from its log end. The leader compares the epoch of our last record with its own history and, where
  they part, answers with the epoch and offset at which they do: we cut there and ask again, until they agree (KIP-595,
  KIP-279). Nothing is ever cut back to the high watermark (KIP-101).
- LOST: our log end is not in the leader's log. Its first and last offset are asked for; then we are cut to its end, or,
  where our end is before its start, restart at its start.
- FLUSHING: the topic's flush.messages wants what was appended to be durable first, be it from this leader or before:
  asking on would acknowledge it.
- BACKING_OFF: something failed; back to FETCHING after a pause, which doubles up to replica.fetch.backoff.ms.
- WAITING: the leader has a later epoch than we know of. Metadata will tell of it, as a new assignment.

An answer counts only while the partition is followed under the epoch, and from the offset, that it was asked with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.log_lines import get_logger
from odradek.common.ports import is_out_of_descriptors
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, ReplicaState
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.replica.fetch_session_handler import PartitionKey, SentSession
from odradek.replica.following import append_from_leader, cut_to_divergence, move_into_range

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.replica.config import FetcherConfig
    from odradek.replica.partition import Partition

LATEST, EARLIEST_LOCAL = -1, -4
# Most failures are races: this broker has heard of a new leader before the leader itself. Those are over in no time.
FIRST_BACK_OFF_MS = 20
_log = get_logger("replica.fetcher")


class State(Enum):
    """Of a partition that is followed; see the head of this file."""

    FETCHING = "fetching"
    LOST = "lost"
    FLUSHING = "flushing"
    BACKING_OFF = "backing off"
    WAITING = "waiting for metadata"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.FETCHING: frozenset({State.LOST, State.FLUSHING, State.BACKING_OFF, State.WAITING}),
    State.LOST: frozenset({State.FETCHING, State.BACKING_OFF}),
    State.FLUSHING: frozenset({State.FETCHING}),
    # Again BACKING_OFF where its pause is over and its disk is full.
    State.BACKING_OFF: frozenset({State.FETCHING, State.BACKING_OFF}),
    # A new assignment takes its place.
    State.WAITING: frozenset(),
}


@dataclass(slots=True)
class Followed:
    """One partition under one leader epoch.

    `asked_offset` is what the leader's session holds, -1 where it holds nothing of this assignment; `asked_in` is the
    number of the request that named it last: answers to earlier ones speak of something else. `lag` counts records up
    to the leader's watermark, None before the first answer.
    """

    partition: Partition
    leader_epoch: int
    state: State = State.FETCHING
    retry_at_ms: int = 0
    asked_offset: int = -1
    asked_in: int = -1
    lag: int | None = None
    reason: str = ""
    failure_count: int = 0


@dataclass(slots=True)
class Consumed:
    """What came of an answer; `throttled_bytes` are those of throttled replicas, `failures` are disks that failed."""

    appended_bytes: int = 0
    throttled_bytes: int = 0
    failures: list[StorageError] = field(default_factory=list)


class Fetcher:
    """The partitions that are fetched over one connection."""

    def __init__(
        self,
        config: FetcherConfig,
        *,
        broker_id: int,
        full_dirs: Callable[[], Collection[Path]] = tuple,
    ) -> None:
        """`full_dirs` are the log directories without space."""
        self.config = config
        self._full_dirs = full_dirs
        self._broker_id = broker_id
        self._session = SentSession()
        self._followed: dict[PartitionKey, Followed] = {}
        # Not FETCHING, and to be asked for again: of thousands, few are looked at for one request.
        self._paused: dict[PartitionKey, Followed] = {}
        self._dirty: dict[PartitionKey, None] = {}
        self._held_back: set[PartitionKey] = set()
        self._failure_count = 0
        self._request_count = self._answer_count = 0

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Followed]:
        return iter(tuple(self._followed.values()))

    def follow(self, partition: Partition) -> None:
        """Fetch a partition under its leader epoch; whatever is under way of an earlier one no longer counts."""
        key = (partition.topic_id, partition.partition_id)
        state = State.FLUSHING if partition.flush_is_due else State.FETCHING
        self._followed[key] = Followed(partition, partition.leader_epoch, state)
        self._enqueue(key)

    def leave(self, key: PartitionKey) -> None:
        """Fetch a partition no more."""
        if self._followed.pop(key, None) is not None:
            self._paused.pop(key, None)
            self._dirty[key] = None

    def followed(self, key: PartitionKey) -> Followed | None:
        """How a partition stands; None where it is not fetched here."""
        return self._followed.get(key)

    # -- asking -------------------------------------------------------------------------------------------------

    def next_request(
        self, now_ms: int, *, broker_epoch: int, held_back: Iterable[PartitionKey] = ()
    ) -> FetchRequest | None:
        """The next Fetch, or None where there is nothing to ask for now.

        Args:
            now_ms: monotonic.
            broker_epoch: of our registration: the leader counts nothing of a broker that has started again (KIP-903).
            held_back: partitions that a quota keeps from being fetched in this round.
        """
        self._wake(now_ms)
        config, skipped = self.config, set(held_back)
        self._dirty.update(dict.fromkeys(sorted(self._held_back | skipped)))
        self._held_back = skipped
        candidates = list(self._followed) if self._session.is_full_next else list(self._dirty)
        named, gone = [], []
        for key in candidates:
            followed = self._followed.get(key)
            if followed is not None and followed.state is State.FETCHING and key not in skipped:
                named.append((key, self._ask(key, followed)))
                continue
            gone.append(key)
            if followed is not None:
                # Were it believed, the answer to the request before this one would say that it need not be named again.
                followed.asked_offset = -1
        self._dirty.clear()
        held_back_count = sum(key in self._followed and key not in self._paused for key in skipped)
        nothing = len(self._paused) + held_back_count == len(self._followed)
        if nothing and (self._session.is_full_next or not gone):
            return None
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=broker_epoch),
            max_wait_ms=config.wait_max_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.response_max_bytes,
        )
        self._session.fill(request, named, gone)
        self._request_count += 1
        return request

    @property
    def can_pipeline(self) -> bool:
        """Whether a request may be sent while one is not answered; at most one."""
        return self._session.is_kept and bool(self._dirty) and self._request_count - self._answer_count == 1

    def has_work(self, now_ms: int) -> bool:
        """Whether anything is to be asked of the leader now."""
        self._wake(now_ms)
        return len(self._paused) < len(self._followed) or self.has_out_of_range

    @property
    def has_out_of_range(self) -> bool:
        """Whether the leader's offsets are to be asked for."""
        return any(each.state is State.LOST for each in self._paused.values())

    def _ask(self, key: PartitionKey, followed: Followed) -> FetchPartition:
        log = followed.partition.log
        followed.asked_offset = log.log_end_offset
        followed.asked_in = self._request_count
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=followed.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self.config.max_bytes,
        )

    def _wake(self, now_ms: int) -> None:
        full = self._full_dirs()
        for key, followed in tuple(self._followed.items() if full else self._paused.items()):
            due = followed.state is State.BACKING_OFF and followed.retry_at_ms <= now_ms
            if (due or followed.state is State.FETCHING) and self._waits_for_space(followed.partition, full):
                followed.retry_at_ms = now_ms + self.config.backoff_ms
                self._to(key, followed, State.BACKING_OFF)
            elif due or (followed.state is State.FLUSHING and not followed.partition.flush_is_due):
                self._to(key, followed, State.FETCHING)

    def _waits_for_space(self, partition: Partition, full: Collection[Path]) -> bool:
        """Whether a partition is not asked for before there is space. One that is in sync is: its leader waits for it,
        unless the controller takes it out of the set."""
        return partition.log.log_dir in full and self._broker_id not in partition.isr

    def retry_at_ms(self) -> int | None:
        """When the next partition has waited long enough after a failure; None where none waits for that."""
        times = (each.retry_at_ms for each in self._paused.values() if each.state is State.BACKING_OFF)
        return min(times, default=None)

    def throttled(self) -> list[PartitionKey]:
        """Throttled replicas that lag: those that a quota may hold back. Who is in sync stays in sync."""
        return [key for key, each in self._followed.items() if each.partition.throttled.as_follower and each.lag != 0]

    def flushing(self) -> list[Partition]:
        """Partitions whose log must be durable before they are fetched on."""
        return [each.partition for each in self._paused.values() if each.state is State.FLUSHING]

    # -- consuming ----------------------------------------------------------------------------------------------

    def received(self, response: FetchResponse, *, now_ms: int, wall_ms: int) -> Consumed:
        """Take the answer to the oldest request that has none.

        Args:
            now_ms: monotonic, for back-offs; wall_ms: the wall clock, by which segments age.
        """
        consumed = Consumed()
        number, self._answer_count = self._answer_count, self._answer_count + 1
        assert self._answer_count <= self._request_count, f"answer {self._answer_count} of {self._request_count}"
        if not self._session.answered(response.error_code, response.session_id):
            _log.debug("fetch session over", broker=self._broker_id, error_code=response.error_code)
            if response.error_code not in _SESSION_ERRORS:
                self._back_off_all(now_ms, f"the leader answered with error {response.error_code}")
            return consumed
        self._failure_count = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed = self._followed.get(key)
                if followed is None or followed.asked_in > number or not self._counts(followed):
                    continue
                try:
                    size_bytes = self._take(key, followed, data, now_ms=now_ms, wall_ms=wall_ms)
                    consumed.appended_bytes += size_bytes
                    consumed.throttled_bytes += size_bytes if followed.partition.throttled.as_follower else 0
                except StorageError as error:
                    consumed.failures += self._storage_failed(key, followed, now_ms, error)
                except ApiError as error:
                    self._back_off(key, followed, now_ms, f"{error.code.name}: {error.message}")
        return consumed

    def failed(self, now_ms: int, reason: str) -> None:
        """The leader could not be reached, or did not answer: all of it is asked for again, in a new session."""
        self._session.lost()
        self._answer_count = self._request_count
        self._back_off_all(now_ms, reason)

    def _counts(self, followed: Followed) -> bool:
        partition = followed.partition
        return (
            followed.state is State.FETCHING
            and followed.asked_offset == partition.log.log_end_offset
            and partition.follows(followed.leader_epoch)
        )

    def _take(self, key: PartitionKey, followed: Followed, data: PartitionData, *, now_ms: int, wall_ms: int) -> int:
        partition = followed.partition
        if data.error_code:
            self._refused(key, followed, data.error_code, now_ms)
            return 0
        self._dirty[key] = None
        if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            # The marks of this answer are of the leader's history, not of ours: nothing else of it is taken.
            cut_to_divergence(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return 0
        records = data.records
        assert not hasattr(records, "chunks"), "a decoded answer has its records as bytes"
        before = partition.log.log_end_offset
        append_from_leader(
            partition,
            records or b"",
            leader_epoch=followed.leader_epoch,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            now_ms=wall_ms,
        )
        assert partition.log.log_end_offset >= before, f"{partition.name} ended at {before}"
        if partition.log.log_end_offset == before:
            self._dirty.pop(key)
        elif partition.flush_is_due:
            self._to(key, followed, State.FLUSHING)
        followed.reason, followed.failure_count = "", 0
        followed.lag = max(0, data.high_watermark - partition.log.log_end_offset)
        return len(records or b"")

    def _refused(self, key: PartitionKey, followed: Followed, error_code: int, now_ms: int) -> None:
        name = followed.partition.name
        if error_code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
            _log.info("follower fetch offset out of range", partition=name, offset=followed.asked_offset)
            self._to(key, followed, State.LOST)
        elif error_code == ErrorCode.FENCED_LEADER_EPOCH:
            _log.info("follower waits to hear of its leader's epoch", partition=name, known=followed.leader_epoch)
            self._to(key, followed, State.WAITING)
        else:
            self._back_off(key, followed, now_ms, _name_of(error_code))

    def _to(self, key: PartitionKey, followed: Followed, state: State) -> None:
        before = followed.state
        assert state in TRANSITIONS[before], f"{followed.partition.name}: {before.value} -> {state.value}"
        followed.state = state
        self._enqueue(key)

    def _enqueue(self, key: PartitionKey) -> None:
        """Ask for a partition, or for it no more, with the next request: by the state that it is in now."""
        followed = self._followed[key]
        self._dirty[key] = None
        if followed.state is State.FETCHING:
            self._paused.pop(key, None)
        else:
            self._paused[key] = followed

    def _storage_failed(
        self, key: PartitionKey, followed: Followed, now_ms: int, error: StorageError
    ) -> list[StorageError]:
        """Leave a partition whose disk failed; one for which no file could be opened is fetched again later."""
        if is_out_of_descriptors(error.__cause__):
            self._back_off(key, followed, now_ms, "no descriptor is left")
            return []
        self.leave(key)
        return [error]

    def _back_off(self, key: PartitionKey, followed: Followed, now_ms: int, reason: str) -> None:
        if reason != followed.reason:
            _log.info("fetching of a partition is put off", partition=followed.partition.name, reason=reason)
        followed.reason = reason
        followed.retry_at_ms = now_ms + self._pause_ms(followed.failure_count)
        followed.failure_count += 1
        self._to(key, followed, State.BACKING_OFF)

    def _back_off_all(self, now_ms: int, reason: str) -> None:
        retry_at_ms = now_ms + self._pause_ms(self._failure_count)
        self._failure_count += 1
        for key, followed in self._followed.items():
            if followed.state in (State.FETCHING, State.LOST):
                followed.retry_at_ms, followed.reason = retry_at_ms, reason
                self._to(key, followed, State.BACKING_OFF)

    def _pause_ms(self, failure_count: int) -> int:
        return min(self.config.backoff_ms, FIRST_BACK_OFF_MS << min(failure_count, 20))

    # -- finding the way back -----------------------------------------------------------------------------------

    def offsets_request(self, timestamp: int) -> tuple[ListOffsetsRequest, list[tuple[PartitionKey, Followed]]] | None:
        """Ask for the leader's LATEST or EARLIEST_LOCAL offsets of all that are LOST; None where none is."""
        lost = [(key, each) for key, each in self._followed.items() if each.state is State.LOST]
        if not lost:
            return None
        topics: dict[str, ListOffsetsTopic] = {}
        for (_, partition_id), followed in lost:
            name = followed.partition.topic
            wanted = ListOffsetsPartition(
                partition_index=partition_id, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
            )
            topics.setdefault(name, ListOffsetsTopic(name=name)).partitions.append(wanted)
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values())), lost

    def found(
        self,
        lost: Iterable[tuple[PartitionKey, Followed]],
        earliest: ListOffsetsResponse,
        latest: ListOffsetsResponse,
        *,
        now_ms: int,
    ) -> list[StorageError]:
        """Take both answers for what was LOST: cut to the leader's end, or begin at its start. Returns failed disks."""
        starts, ends = _offsets(earliest), _offsets(latest)
        failures = []
        for key, followed in lost:
            if self._followed.get(key) is not followed or followed.state is not State.LOST:
                continue
            name = (followed.partition.topic, key[1])
            (start_error, start), (end_error, end) = starts.get(name, (-1, -1)), ends.get(name, (-1, -1))
            if start_error or end_error or not followed.partition.follows(followed.leader_epoch):
                self._back_off(key, followed, now_ms, _name_of(start_error or end_error))
                continue
            try:
                before = followed.partition.log.log_end_offset
                move_into_range(followed.partition, start, end)
                if followed.partition.log.log_end_offset == before:
                    # Asked again at once it would refuse again: it knows nothing of our last epoch.
                    self._back_off(key, followed, now_ms, f"the leader refuses {before}, and has {start} to {end}")
                else:
                    self._to(key, followed, State.FETCHING)
            except StorageError as error:
                failures += self._storage_failed(key, followed, now_ms, error)
        return failures


_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


def _offsets(response: ListOffsetsResponse) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic.name, each.partition_index): (each.error_code, each.offset)
        for topic in response.topics
        for each in topic.partitions
    }


def _name_of(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
