"""The fetch states of the partitions that a follower fetches over one connection to their leader.

Pure: time is an argument, and `fetcher_manager` does the I/O. The states of a partition:

- FETCHING: the next request fetches from the log end offset. A leader whose log diverges from the follower's answers
  with the epoch and offset of the divergence; the follower truncates there and fetches again, until both logs agree
  (KIP-595, KIP-279). It never truncates to the high watermark (KIP-101).
- OUT_OF_RANGE: the leader's log does not include the follower's log end offset. The follower lists the leader's
  offsets, and truncates to the leader's log end, or restarts at its log start if the follower's log ends before it.
- FLUSHING: flush.messages requires a flush before the next request, which would acknowledge the records.
- BACKING_OFF: a request failed. After a pause, which doubles up to replica.fetch.backoff.ms, FETCHING follows.
- WAITING: the leader has a later epoch than this broker's metadata. New metadata adds the partition again.

A response counts only for a partition whose leader epoch and fetch offset are those of the request.
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
from odradek.replica.fetch_session_handler import FetchSessionHandler, PartitionKey
from odradek.replica.following import append_from_leader, handle_out_of_range, truncate_to_divergence

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.replica.config import FetcherConfig
    from odradek.replica.partition import Partition

LATEST, EARLIEST_LOCAL = -1, -4
# Most failures are races: this broker has applied a change of leader before the leader itself. They end quickly.
FIRST_BACK_OFF_MS = 20
_log = get_logger("replica.fetcher")


class State(Enum):
    """The fetch state of a partition; the module's docstring describes each."""

    FETCHING = "fetching"
    OUT_OF_RANGE = "out of range"
    FLUSHING = "flushing"
    BACKING_OFF = "backing off"
    WAITING = "waiting for metadata"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.FETCHING: frozenset({State.OUT_OF_RANGE, State.FLUSHING, State.BACKING_OFF, State.WAITING}),
    State.OUT_OF_RANGE: frozenset({State.FETCHING, State.BACKING_OFF}),
    State.FLUSHING: frozenset({State.FETCHING}),
    # Again BACKING_OFF where its pause is over and its disk is full.
    State.BACKING_OFF: frozenset({State.FETCHING, State.BACKING_OFF}),
    # New metadata replaces the fetch state.
    State.WAITING: frozenset(),
}


@dataclass(slots=True)
class PartitionFetchState:
    """One partition under one leader epoch.

    Attributes:
        requested_offset: the fetch offset in the leader's session; -1 where the session does not include it.
        requested_in: the number of the last request that named the partition; responses to earlier ones do not count.
        lag: records up to the leader's high watermark; None before the first response.
    """

    partition: Partition
    leader_epoch: int
    state: State = State.FETCHING
    retry_at_ms: int = 0
    requested_offset: int = -1
    requested_in: int = -1
    lag: int | None = None
    reason: str = ""
    failure_count: int = 0


@dataclass(slots=True)
class ProcessedResponse:
    """The result of a response; `throttled_bytes` are of throttled replicas, `failures` are of disks."""

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
        self._session = FetchSessionHandler()
        self._fetch_states: dict[PartitionKey, PartitionFetchState] = {}
        # The partitions that are not FETCHING: a request checks these instead of all, which may be thousands.
        self._paused: dict[PartitionKey, PartitionFetchState] = {}
        self._dirty: dict[PartitionKey, None] = {}
        self._held_back: set[PartitionKey] = set()
        self._failure_count = 0
        self._request_count = self._answer_count = 0

    def __len__(self) -> int:
        return len(self._fetch_states)

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(tuple(self._fetch_states.values()))

    def add_partition(self, partition: Partition) -> None:
        """Fetch a partition in its leader epoch; pending responses of an earlier epoch no longer count."""
        key = (partition.topic_id, partition.partition_id)
        state = State.FLUSHING if partition.flush_is_due else State.FETCHING
        self._fetch_states[key] = PartitionFetchState(partition, partition.leader_epoch, state)
        self._enqueue(key)

    def remove_partition(self, key: PartitionKey) -> None:
        """Stop fetching a partition."""
        if self._fetch_states.pop(key, None) is not None:
            self._paused.pop(key, None)
            self._dirty[key] = None

    def fetch_state(self, key: PartitionKey) -> PartitionFetchState | None:
        """The fetch state of a partition; None if it is not fetched here."""
        return self._fetch_states.get(key)

    # -- requests -----------------------------------------------------------------------------------------------

    def next_request(
        self, now_ms: int, *, broker_epoch: int, held_back: Iterable[PartitionKey] = ()
    ) -> FetchRequest | None:
        """Build the next Fetch; None where no partition can be fetched now.

        Args:
            now_ms: monotonic.
            broker_epoch: of this broker's registration; the leader ignores a fetch of an earlier one (KIP-903).
            held_back: partitions that a quota excludes from this request.
        """
        self._resume_due(now_ms)
        config, skipped = self.config, set(held_back)
        self._dirty.update(dict.fromkeys(sorted(self._held_back | skipped)))
        self._held_back = skipped
        candidates = list(self._fetch_states) if self._session.is_full_next else list(self._dirty)
        named, gone = [], []
        for key in candidates:
            fetch_state = self._fetch_states.get(key)
            if fetch_state is not None and fetch_state.state is State.FETCHING and key not in skipped:
                named.append((key, self._fetch_partition(key, fetch_state)))
                continue
            gone.append(key)
            if fetch_state is not None:
                # The response to the previous request must not mark it as sent: the next request names it again.
                fetch_state.requested_offset = -1
        self._dirty.clear()
        held_back_count = sum(key in self._fetch_states and key not in self._paused for key in skipped)
        nothing = len(self._paused) + held_back_count == len(self._fetch_states)
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
        """Whether a request may be sent while one is pending; at most one may be."""
        return self._session.is_kept and bool(self._dirty) and self._request_count - self._answer_count == 1

    def has_work(self, now_ms: int) -> bool:
        """Whether a request can be sent now."""
        self._resume_due(now_ms)
        return len(self._paused) < len(self._fetch_states) or self.has_out_of_range

    @property
    def has_out_of_range(self) -> bool:
        """Whether the leader's offsets must be listed."""
        return any(each.state is State.OUT_OF_RANGE for each in self._paused.values())

    def _fetch_partition(self, key: PartitionKey, fetch_state: PartitionFetchState) -> FetchPartition:
        log = fetch_state.partition.log
        fetch_state.requested_offset = log.log_end_offset
        fetch_state.requested_in = self._request_count
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=fetch_state.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self.config.max_bytes,
        )

    def _resume_due(self, now_ms: int) -> None:
        full = self._full_dirs()
        for key, fetch_state in tuple(self._fetch_states.items() if full else self._paused.items()):
            due = fetch_state.state is State.BACKING_OFF and fetch_state.retry_at_ms <= now_ms
            if (due or fetch_state.state is State.FETCHING) and self._waits_for_space(fetch_state.partition, full):
                fetch_state.retry_at_ms = now_ms + self.config.backoff_ms
                self._transition(key, fetch_state, State.BACKING_OFF)
            elif due or (fetch_state.state is State.FLUSHING and not fetch_state.partition.flush_is_due):
                self._transition(key, fetch_state, State.FETCHING)

    def _waits_for_space(self, partition: Partition, full: Collection[Path]) -> bool:
        """Whether to fetch a partition only once its disk has space.

        An in-sync replica is fetched even so: its leader waits for it, until the controller removes it from the ISR.
        """
        return partition.log.log_dir in full and self._broker_id not in partition.isr

    def retry_at_ms(self) -> int | None:
        """When the next backoff ends; None where no partition backs off."""
        times = (each.retry_at_ms for each in self._paused.values() if each.state is State.BACKING_OFF)
        return min(times, default=None)

    def throttled(self) -> list[PartitionKey]:
        """The throttled replicas that lag, which a quota may exclude; those that are caught up stay in sync."""
        return [
            key for key, each in self._fetch_states.items() if each.partition.throttled.as_follower and each.lag != 0
        ]

    def flushing(self) -> list[Partition]:
        """The partitions whose log must be flushed before they are fetched again."""
        return [each.partition for each in self._paused.values() if each.state is State.FLUSHING]

    # -- responses ----------------------------------------------------------------------------------------------

    def received(self, response: FetchResponse, *, now_ms: int, wall_ms: int) -> ProcessedResponse:
        """Process the response to the oldest pending request.

        Args:
            now_ms: monotonic, for backoffs.
            wall_ms: wall clock, for the age of segments.
        """
        processed = ProcessedResponse()
        number, self._answer_count = self._answer_count, self._answer_count + 1
        assert self._answer_count <= self._request_count, f"answer {self._answer_count} of {self._request_count}"
        if not self._session.handle_response(response.error_code, response.session_id):
            _log.debug("fetch session closed", broker=self._broker_id, error_code=response.error_code)
            if response.error_code not in _SESSION_ERRORS:
                self._back_off_all(now_ms, f"the leader answered with error {response.error_code}")
            return processed
        self._failure_count = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                fetch_state = self._fetch_states.get(key)
                if fetch_state is None or fetch_state.requested_in > number or not self._is_current(fetch_state):
                    continue
                try:
                    size_bytes = self._process_partition_data(key, fetch_state, data, now_ms=now_ms, wall_ms=wall_ms)
                    processed.appended_bytes += size_bytes
                    processed.throttled_bytes += size_bytes if fetch_state.partition.throttled.as_follower else 0
                except StorageError as error:
                    processed.failures += self._storage_failed(key, fetch_state, now_ms, error)
                except ApiError as error:
                    self._back_off(key, fetch_state, now_ms, f"{error.code.name}: {error.message}")
        return processed

    def failed(self, now_ms: int, reason: str) -> None:
        """A request failed: back off, and fetch all partitions again in a new session."""
        self._session.reset()
        self._answer_count = self._request_count
        self._back_off_all(now_ms, reason)

    def _is_current(self, fetch_state: PartitionFetchState) -> bool:
        partition = fetch_state.partition
        return (
            fetch_state.state is State.FETCHING
            and fetch_state.requested_offset == partition.log.log_end_offset
            and partition.follows(fetch_state.leader_epoch)
        )

    def _process_partition_data(
        self, key: PartitionKey, fetch_state: PartitionFetchState, data: PartitionData, *, now_ms: int, wall_ms: int
    ) -> int:
        partition = fetch_state.partition
        if data.error_code:
            self._handle_error(key, fetch_state, data.error_code, now_ms)
            return 0
        self._dirty[key] = None
        if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            # The other offsets of this response do not apply to a log that has diverged.
            truncate_to_divergence(partition, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return 0
        records = data.records
        assert not hasattr(records, "chunks"), "a decoded answer has its records as bytes"
        before = partition.log.log_end_offset
        append_from_leader(
            partition,
            records or b"",
            leader_epoch=fetch_state.leader_epoch,
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            now_ms=wall_ms,
        )
        assert partition.log.log_end_offset >= before, f"{partition.name} ended at {before}"
        if partition.log.log_end_offset == before:
            self._dirty.pop(key)
        elif partition.flush_is_due:
            self._transition(key, fetch_state, State.FLUSHING)
        fetch_state.reason, fetch_state.failure_count = "", 0
        fetch_state.lag = max(0, data.high_watermark - partition.log.log_end_offset)
        return len(records or b"")

    def _handle_error(self, key: PartitionKey, fetch_state: PartitionFetchState, error_code: int, now_ms: int) -> None:
        name = fetch_state.partition.name
        if error_code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
            _log.info("follower fetch offset out of range", partition=name, offset=fetch_state.requested_offset)
            self._transition(key, fetch_state, State.OUT_OF_RANGE)
        elif error_code == ErrorCode.FENCED_LEADER_EPOCH:
            _log.info(
                "follower waits for metadata with its leader's epoch", partition=name, known=fetch_state.leader_epoch
            )
            self._transition(key, fetch_state, State.WAITING)
        else:
            self._back_off(key, fetch_state, now_ms, _name_of(error_code))

    def _transition(self, key: PartitionKey, fetch_state: PartitionFetchState, state: State) -> None:
        before = fetch_state.state
        assert state in TRANSITIONS[before], f"{fetch_state.partition.name}: {before.value} -> {state.value}"
        fetch_state.state = state
        self._enqueue(key)

    def _enqueue(self, key: PartitionKey) -> None:
        """Include a partition in the next request, or exclude it, by its present state."""
        fetch_state = self._fetch_states[key]
        self._dirty[key] = None
        if fetch_state.state is State.FETCHING:
            self._paused.pop(key, None)
        else:
            self._paused[key] = fetch_state

    def _storage_failed(
        self, key: PartitionKey, fetch_state: PartitionFetchState, now_ms: int, error: StorageError
    ) -> list[StorageError]:
        """Stop fetching a partition whose disk failed; without free descriptors, back off instead."""
        if is_out_of_descriptors(error.__cause__):
            self._back_off(key, fetch_state, now_ms, "too many open files")
            return []
        self.remove_partition(key)
        return [error]

    def _back_off(self, key: PartitionKey, fetch_state: PartitionFetchState, now_ms: int, reason: str) -> None:
        if reason != fetch_state.reason:
            _log.info("fetch of a partition backs off", partition=fetch_state.partition.name, reason=reason)
        fetch_state.reason = reason
        fetch_state.retry_at_ms = now_ms + self._pause_ms(fetch_state.failure_count)
        fetch_state.failure_count += 1
        self._transition(key, fetch_state, State.BACKING_OFF)

    def _back_off_all(self, now_ms: int, reason: str) -> None:
        retry_at_ms = now_ms + self._pause_ms(self._failure_count)
        self._failure_count += 1
        for key, fetch_state in self._fetch_states.items():
            if fetch_state.state in (State.FETCHING, State.OUT_OF_RANGE):
                fetch_state.retry_at_ms, fetch_state.reason = retry_at_ms, reason
                self._transition(key, fetch_state, State.BACKING_OFF)

    def _pause_ms(self, failure_count: int) -> int:
        return min(self.config.backoff_ms, FIRST_BACK_OFF_MS << min(failure_count, 20))

    # -- out of range -------------------------------------------------------------------------------------------

    def offsets_request(
        self, timestamp: int
    ) -> tuple[ListOffsetsRequest, list[tuple[PartitionKey, PartitionFetchState]]] | None:
        """Build a ListOffsets for the OUT_OF_RANGE partitions, by LATEST or EARLIEST_LOCAL; None if there are none."""
        out_of_range = [(key, each) for key, each in self._fetch_states.items() if each.state is State.OUT_OF_RANGE]
        if not out_of_range:
            return None
        topics: dict[str, ListOffsetsTopic] = {}
        for (_, partition_id), fetch_state in out_of_range:
            name = fetch_state.partition.topic
            wanted = ListOffsetsPartition(
                partition_index=partition_id, current_leader_epoch=fetch_state.leader_epoch, timestamp=timestamp
            )
            topics.setdefault(name, ListOffsetsTopic(name=name)).partitions.append(wanted)
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values())), out_of_range

    def handle_offsets(
        self,
        out_of_range: Iterable[tuple[PartitionKey, PartitionFetchState]],
        earliest: ListOffsetsResponse,
        latest: ListOffsetsResponse,
        *,
        now_ms: int,
    ) -> list[StorageError]:
        """Truncate the OUT_OF_RANGE partitions to the leader's log end, or restart them at its log start.

        Returns:
            The failures of disks.
        """
        starts, ends = _offsets(earliest), _offsets(latest)
        failures = []
        for key, fetch_state in out_of_range:
            if self._fetch_states.get(key) is not fetch_state or fetch_state.state is not State.OUT_OF_RANGE:
                continue
            name = (fetch_state.partition.topic, key[1])
            (start_error, start), (end_error, end) = starts.get(name, (-1, -1)), ends.get(name, (-1, -1))
            if start_error or end_error or not fetch_state.partition.follows(fetch_state.leader_epoch):
                self._back_off(key, fetch_state, now_ms, _name_of(start_error or end_error))
                continue
            try:
                before = fetch_state.partition.log.log_end_offset
                handle_out_of_range(fetch_state.partition, start, end)
                if fetch_state.partition.log.log_end_offset == before:
                    # The leader's range includes the offset, and the leader refused it: its state is not current yet.
                    self._back_off(key, fetch_state, now_ms, f"the leader refuses {before}, and has {start} to {end}")
                else:
                    self._transition(key, fetch_state, State.FETCHING)
            except StorageError as error:
                failures += self._storage_failed(key, fetch_state, now_ms, error)
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
