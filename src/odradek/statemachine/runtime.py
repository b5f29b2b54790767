"""The one runtime beneath the controller and the group, transaction and share coordinators.

    answer = await runtime.run(lambda: machine.create_topics(request))

An operation is a plain function that returns a `Result`. The runtime runs one operation at a time, all that queued up
during a turn of the loop as one group: it prepares their records, replays them, appends the whole group with one call
of the log, and parks each response until the log says that its records, and every record that the operation could have
seen, are committed. So

- the next operation sees the state of the one before, without waiting for the disk or for followers;
- no caller gets a response, not even a refusal, that depends on a write which fails later;
- a consistent read is an operation without records.

An operation that decides in steps, or that has thousands of records, takes several turns of the loop to be decided,
prepared, replayed and appended, between which everybody else is served, and no other operation of the machine runs.

States of a runtime, which serves one leadership of one machine:

    NEW --load()--> LOADING --> ACTIVE --unload()--> ENDED
                       `--------- any failure -------^

When the append fails, the machine's timeline takes the group's changes back, its callers get the error, and the
leadership goes on. When appended records are lost (it moved, or the disk failed), or a machine cannot replay its
decisions, the leadership ends: `on_failed` is called, and every parked caller gets the error that `unload` would give.

Source: Kafka CoordinatorRuntime and QuorumController, which solve this twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from enum import Enum
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from odradek.common.buggify import buggify
from odradek.common.errors import ApiError, ErrorCode
from odradek.common.steps import all_steps, next_step
from odradek.statemachine.machine import Result, StateMachine, Steps
from odradek.statemachine.timeline import Timeline

RecordT = TypeVar("RecordT")
PreparedT = TypeVar("PreparedT")
ResponseT = TypeVar("ResponseT")

# The most operations in one turn of the event loop (some 20 us each).
MAX_OPERATIONS_PER_TURN = 500
# Nor than the records of so many take that are replayed (some 5 to 10 us each).
MAX_RECORDS_PER_TURN = 1000


class MachineLog(Protocol[RecordT, PreparedT]):
    """The log beneath a machine, which is its only writer."""

    @property
    def end_offset(self) -> int:
        """Exclusive: the offset that the next appended record gets."""
        ...

    @property
    def committed_offset(self) -> int:
        """Exclusive: the high watermark, as far as this log knows it now; never above `end_offset`."""
        ...

    def prepare(self, records: Sequence[RecordT], *, atomic: bool) -> Generator[None, None, PreparedT]:
        """Encode the records of one operation, without changing the log; in steps, with other tasks between them.

        Raises:
            ApiError: the records cannot be written, for example MESSAGE_TOO_LARGE; only this operation fails.
        """
        ...

    def append(self, groups: Sequence[PreparedT]) -> int:
        """Write the records of several operations, in order, each record taking the next offset.

        An atomic operation's records lie in one batch, so that a crash leaves all or none of them.

        Returns:
            The log's new end offset (exclusive).
        Raises:
            ApiError: nothing was written (no longer the leader, too few replicas in sync).
            StorageError: the disk failed.
        """
        ...

    async def wait_committed(self, end_offset: int) -> None:
        """Return once all records below `end_offset` are committed: durable, and replicated where it must be.

        Raises:
            ApiError, StorageError: they will not be, or that is unknown.
        """
        ...

    def read_all(self) -> AsyncIterator[Sequence[tuple[int, RecordT]]]:
        """All records below `end_offset` with their offsets, in slices that are replayed in a few milliseconds.

        A leader's own log is never cut, so what it holds may be replayed before it is known to be committed. If the
        log begins with a snapshot, its records come first, all with the snapshot's last contained offset. An empty
        slice means that nothing can be read at the moment: the caller requests the next one a little later.

        Raises:
            StorageError: the log is damaged or cannot be read.
        """
        ...


# How long a load waits where its log cannot be read at the moment.
LOAD_AGAIN_S = 0.1


Operation: TypeAlias = Callable[[], Result[RecordT, Any] | Steps[RecordT, Any]]


class State(Enum):
    """The state of a runtime; see the module's head."""

    NEW = "new"
    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.LOADING, State.ENDED}),
    State.LOADING: frozenset({State.ACTIVE, State.ENDED}),
    State.ACTIVE: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}


class _Parked:
    """A caller, and its response once `end_offset` is committed."""

    __slots__ = ("end_offset", "error", "future", "response")

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future
        self.end_offset = 0
        self.response: Any = None
        self.error: BaseException | None = None

    def release(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.response)

    def time_out(self, timeout_ms: int) -> None:
        self.fail(ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not committed within {timeout_ms} ms"))

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            # One exception object per caller: each grows a traceback of its own.
            copy = ApiError(error.code, error.message) if isinstance(error, ApiError) else error
            self.future.set_exception(copy)


class _ChunkedOperation(Generic[RecordT]):
    """An operation that runs in several turns; no other one runs until it is appended.

    Attributes:
        result: None while it is being decided.
        base_offset: the log end offset for which its decision is valid.
    """

    __slots__ = ("base_offset", "operation", "parked", "preparation", "prepared", "replayed_count", "result", "steps")

    def __init__(
        self,
        parked: _Parked,
        operation: Operation[RecordT],
        decided: Result[RecordT, Any] | Steps[RecordT, Any],
        base_offset: int,
    ) -> None:
        self.parked = parked
        self.operation = operation
        self.steps: Steps[RecordT, Any] | None = None
        self.result: Result[RecordT, Any] | None = None
        if isinstance(decided, Result):
            self.result = decided
        else:
            self.steps = decided
        self.base_offset = base_offset
        self.preparation: Generator[None, None, Any] | None = None
        self.prepared: list[Any] = []
        self.replayed_count = 0


class Runtime(Generic[RecordT]):
    """Runs the operations of one machine over one log, during one leadership."""

    def __init__(
        self,
        machine: StateMachine[RecordT],
        log: MachineLog[RecordT, Any],
        timeline: Timeline,
        *,
        not_leader: ErrorCode = ErrorCode.NOT_COORDINATOR,
        loading: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        on_failed: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """
        Args:
            machine: its state lives in collections of `timeline`, or can be wrong after a failed append.
            log: the log that the machine alone writes.
            not_leader: the error before `load()` and after leadership ends: NOT_COORDINATOR, NOT_CONTROLLER.
            loading: the error while the machine loads.
            on_failed: called once, on the loop, when the leadership ends by itself.
        """
        self.machine = machine
        self._log = log
        self._timeline = timeline
        self._not_leader = not_leader
        self._loading = loading
        self._on_failed = on_failed
        self._state = State.NEW
        self._queue: deque[tuple[_Parked, Operation[RecordT]]] = deque()
        self._parked: deque[_Parked] = deque()
        self._long: _ChunkedOperation[RecordT] | None = None
        self._turn_scheduled = False
        self._committed_offset = 0
        self._end_offset = 0
        self._next_offset = 0
        self._committer: asyncio.Task[None] | None = None
        self._appended = asyncio.Event()
        self._end_error: BaseException | None = None

    @property
    def state(self) -> State:
        return self._state

    @property
    def active(self) -> bool:
        return self._state is State.ACTIVE

    @property
    def committed_offset(self) -> int:
        """Exclusive: everything below has been replayed and is committed."""
        return self._committed_offset

    @property
    def next_offset(self) -> int:
        """The offset of the first record that the operation under way will return; meaningful inside operations."""
        return self._next_offset

    async def load(self) -> int:
        """Replay everything committed, in slices that let others run, then begin to serve.

        Returns:
            The number of records replayed. After an `unload()` before or meanwhile the runtime has ended, quietly.
        Raises:
            StorageError: the log cannot be read; the runtime has ended.
        """
        if self._state is State.ENDED:
            return 0  # the leadership ended before the task that loads had its first turn
        self._to(State.LOADING)
        count, last_offset = 0, -1
        try:
            async for records in self._log.read_all():
                await buggify("machine: before a slice is replayed")
                if self._state is not State.LOADING:
                    return count
                if records:
                    # Equal where a snapshot's records come first: all have the offset of its last one.
                    first_offset = records[0][0]
                    assert first_offset >= last_offset, f"offset {first_offset} is replayed after {last_offset}"
                    last_offset = records[-1][0]
                for offset, record in records:
                    self.machine.replay(record, offset)
                count += len(records)
                await asyncio.sleep(0 if records else LOAD_AGAIN_S)
        except Exception as error:
            self._end(error)
            raise
        if self._state is State.LOADING:
            self._committed_offset = self._log.committed_offset
            self._end_offset = self._log.end_offset
            assert self._committed_offset <= self._end_offset, f"{self._committed_offset} > {self._end_offset}"
            assert last_offset < self._end_offset, f"offset {last_offset} of a log that ends at {self._end_offset}"
            self._timeline.mark(self._end_offset)
            self._to(State.ACTIVE)
            self._committer = asyncio.get_running_loop().create_task(self._commit())
            self.machine.on_loaded()
        return count

    async def run(
        self,
        operation: Callable[[], Result[RecordT, ResponseT] | Steps[RecordT, ResponseT]],
        *,
        timeout_ms: int | None = None,
    ) -> ResponseT:
        """Run one operation and return its response once everything that it wrote or saw is committed.

        Args:
            operation: reads the machine, changes nothing, returns a `Result`, at once or in steps, or raises ApiError.
                It runs on the loop, after this call and before the first answer of any later one; it must not await.
            timeout_ms: how long the caller waits; None waits as long as the leadership lasts.
        Returns:
            The `response` of the result.
        Raises:
            ApiError: the error of the operation or of the log's append; REQUEST_TIMED_OUT (an operation that had begun
                may yet take effect); `not_leader` or `loading`.
        Concurrency: callers queue in the order of their calls. The queue is as long as there are callers waiting.
        """
        self._check_active()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResponseT] = loop.create_future()
        parked = _Parked(future)
        self._queue.append((parked, operation))
        self._schedule_turn()
        if timeout_ms is None:
            return await future
        timer = loop.call_later(max(0, timeout_ms) / 1000, parked.time_out, timeout_ms)
        try:
            return await future
        finally:
            timer.cancel()

    def unload(self, error: BaseException | None = None) -> None:
        """End the leadership: queued and parked callers get `error` (default: ApiError of `not_leader`). Idempotent."""
        self._end(error or ApiError(self._not_leader), failed=False)

    async def close(self) -> None:
        """End the leadership and wait for the runtime's own tasks."""
        self.unload()
        if self._committer is not None:
            await asyncio.gather(self._committer, return_exceptions=True)

    def _to(self, state: State) -> None:
        assert state in TRANSITIONS[self._state], f"a runtime: {self._state.value} -> {state.value}"
        self._state = state

    def _check_active(self) -> None:
        if self._state is State.ACTIVE:
            return
        if self._state is State.LOADING:
            raise ApiError(self._loading)
        if isinstance(self._end_error, ApiError):
            raise ApiError(self._end_error.code, self._end_error.message)
        raise ApiError(self._not_leader)

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        if self._state is not State.ACTIVE:
            return
        if self._long is None:
            self._run_group()
        else:
            self._continue(self._long)
        if self._queue or self._long is not None:
            self._schedule_turn()

    def _run_group(self) -> None:
        """Run what queued up, replay, append as one group, park."""
        base_offset = self._log.end_offset
        self._skip_foreign_records(base_offset)
        group: list[_Parked] = []
        prepared: list[Any] = []
        try:
            next_offset = self._run_queued(base_offset, group, prepared)
        except Exception as error:
            self._parked.extend(group)
            self._end(error)
            return
        if not self._append(base_offset, next_offset, group, prepared):
            self._restart()

    def _append(self, base_offset: int, next_offset: int, group: list[_Parked], prepared: list[Any]) -> bool:
        """Append what was replayed; returns whether it is there."""
        try:
            if prepared:
                end_offset = self._log.append(prepared)
                assert end_offset == next_offset, f"appended up to {end_offset}, replayed up to {next_offset}"
        except ApiError as error:
            self._timeline.revert_to(base_offset)
            for parked in group:
                parked.fail(error)
            return False
        except Exception as error:
            self._parked.extend(group)
            self._end(error)
            return False
        if self._parked and group:
            newest, first = self._parked[-1].end_offset, group[0].end_offset
            assert newest <= first, f"callers are answered in the log's order: {newest}, then {first}"
        if prepared:
            self._timeline.mark(next_offset)
            self._end_offset = next_offset
        self._parked.extend(group)
        if prepared and self._log.committed_offset >= next_offset:
            self._committed()  # the log has one replica
        else:
            self._release()
            if self._parked:
                self._appended.set()
        return True

    def _restart(self) -> None:
        """Decide a long operation again, since the log end has changed."""
        if self._long is not None:
            self._queue.appendleft((self._long.parked, self._long.operation))
            self._long = None

    def _continue(self, long: _ChunkedOperation[RecordT]) -> None:
        """Do the next part of a long operation: decide, prepare its records, replay some of them, append all."""
        if self._log.end_offset != long.base_offset:
            # The log itself has appended records in between: those of the voters.
            self._timeline.revert_to(long.base_offset)
            self._restart()
            return
        try:
            if not self._is_prepared(long):
                return
        except Exception as error:
            # As in `_run_queued`: it has changed nothing yet.
            long.parked.error = error
            self._end_long(long, [])
            return
        self._replay_some(long)

    def _is_prepared(self, long: _ChunkedOperation[RecordT]) -> bool:
        """Run one step of the preparation for replay; returns whether it is complete."""
        if long.result is None:
            assert long.steps is not None
            long.result = next_step(long.steps)
            if long.result is None:
                return False
            long.parked.response = long.result.response
        if long.result.records and not long.prepared:
            if long.preparation is None:
                long.preparation = self._log.prepare(long.result.records, atomic=long.result.atomic)
            prepared = next_step(long.preparation)
            if prepared is not None:
                long.prepared.append(prepared)
            return False
        return True

    def _replay_some(self, long: _ChunkedOperation[RecordT]) -> None:
        assert long.result is not None
        records, base_offset = long.result.records, long.base_offset
        if long.replayed_count < len(records):
            first = long.replayed_count
            long.replayed_count = min(len(records), first + MAX_RECORDS_PER_TURN)
            try:
                for place in range(first, long.replayed_count):
                    self.machine.replay(records[place], base_offset + place)
            except Exception as error:
                self._end(error)
        else:
            self._end_long(long, records)

    def _end_long(self, long: _ChunkedOperation[RecordT], records: Sequence[RecordT]) -> None:
        """Append the records of a long operation; none if it was refused."""
        long.parked.end_offset, self._long = long.base_offset + len(records), None
        self._append(long.base_offset, long.parked.end_offset, [long.parked], long.prepared if records else [])

    def _skip_foreign_records(self, end_offset: int) -> None:
        """The log may hold records of its own between a machine's, which change nothing here: the quorum's voters."""
        assert end_offset >= self._end_offset, "a machine's log was cut"
        if end_offset > self._end_offset:
            self._timeline.mark(end_offset)
            self._end_offset = end_offset

    def _run_queued(self, base_offset: int, group: list[_Parked], prepared: list[Any]) -> int:
        self._next_offset = base_offset
        while (
            self._queue
            and len(group) < MAX_OPERATIONS_PER_TURN
            and self._next_offset - base_offset < MAX_RECORDS_PER_TURN
        ):
            parked, operation = self._queue.popleft()
            if parked.future.done():  # its caller gave up before it began
                continue
            group.append(parked)
            try:
                result = self._decided(parked, operation)
                if result is None:
                    group.pop()
                    break
                if result.records:
                    prepared.append(all_steps(self._log.prepare(result.records, atomic=result.atomic)))
            except Exception as error:
                # A refusal, or a bug of an operation: it has changed nothing, and affects only its caller.
                parked.error = error
            else:
                for record in result.records:
                    self.machine.replay(record, self._next_offset)
                    self._next_offset += 1
            parked.end_offset = self._next_offset
        return self._next_offset

    def _decided(self, parked: _Parked, operation: Operation[RecordT]) -> Result[RecordT, Any] | None:
        """The result of an operation; None if it needs several turns, and then runs alone."""
        decided = operation()
        result = decided if isinstance(decided, Result) else next_step(decided)
        if result is not None:
            parked.response = result.response
            if len(result.records) <= MAX_RECORDS_PER_TURN:
                return result
            decided = result
        assert self._long is None, "one long operation at a time"
        self._long = _ChunkedOperation(parked, operation, decided, self._next_offset)
        return None

    def _release(self) -> None:
        while self._parked and self._parked[0].end_offset <= self._committed_offset:
            self._parked.popleft().release()

    async def _commit(self) -> None:
        """Wait for the newest append, repeatedly; later appends share the next wait."""
        while True:
            await self._appended.wait()
            self._appended.clear()
            while self._parked:
                try:
                    await self._log.wait_committed(self._parked[0].end_offset)
                    await buggify("machine: before answers are released")
                except Exception as error:
                    self._end(error)
                    return
                self._committed()

    def _committed(self) -> None:
        """Return the responses whose records are committed."""
        committed, end_offset = self._log.committed_offset, self._log.end_offset
        assert committed <= end_offset, f"{committed} is committed of a log that ends at {end_offset}"
        self._committed_offset = max(self._committed_offset, committed)
        self._timeline.discard_below(self._committed_offset)
        self._release()

    def _end(self, error: BaseException, *, failed: bool = True) -> None:
        if self._state is State.ENDED:
            return
        self._to(State.ENDED)
        self._end_error = error
        answer = error if isinstance(error, ApiError) else ApiError(self._not_leader)
        parked = [*self._parked, *(entry for entry, _ in self._queue)]
        if self._long is not None:
            parked.append(self._long.parked)
            self._long = None
        self._parked.clear()
        self._queue.clear()
        for entry in parked:
            entry.fail(answer)
        committer = self._committer
        if committer is not None and committer is not asyncio.current_task():
            committer.cancel()
        self._timeline.discard_all()
        self.machine.on_unloaded()
        if failed:
            self._on_failed(error)
