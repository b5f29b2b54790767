"""The runtime over a log in memory whose commits the test controls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Generator, Sequence

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.statemachine.machine import Result, Steps
from odradek.statemachine.runtime import MAX_RECORDS_PER_TURN, TRANSITIONS, Runtime, State
from odradek.statemachine.timeline import Timeline, TimelineDict
from tests.support.models.transitions import check_every_pair


class Counter:
    """A machine of named counters."""

    def __init__(self, timeline: Timeline) -> None:
        self.values: TimelineDict[str, int] = TimelineDict(timeline)
        self.offsets: list[int] = []
        self.events: list[str] = []

    def add(self, name: str, amount: int = 1) -> Result[tuple[str, int], int]:
        if amount < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, "negative")
        value = self.values.get(name, 0) + amount
        return Result([(name, value)], value)

    def add_many(self, count: int) -> Result[tuple[str, int], int]:
        return Result([(f"many-{number}", self.values.get("a", 0)) for number in range(count)], self.values.get("a", 0))

    def add_in_steps(self, name: str, steps: int, *, record_count: int = 1) -> Steps[tuple[str, int], int]:
        """Yield `steps` times; the record at the end depends on the value that was read at the beginning."""
        value = self.values.get(name, 0) + 1
        for _ in range(steps):
            self.events.append("step")
            yield
        if record_count < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, "negative")
        return Result([(name, value)] * record_count, value)

    def read(self, name: str) -> Result[tuple[str, int], int]:
        return Result([], self.values.get(name, 0))

    def replay(self, record: tuple[str, int], offset: int) -> None:
        if record[0] == "poison":
            raise RuntimeError("cannot replay")
        self.values[record[0]] = record[1]
        self.offsets.append(offset)

    def on_loaded(self) -> None:
        self.events.append("loaded")

    def on_unloaded(self) -> None:
        self.events.append("unloaded")


class MemoryLog:
    """Records in a list; `commit` moves the committed offset."""

    def __init__(self, records: Sequence[tuple[str, int]] = ()) -> None:
        self.records = list(records)
        self.committed_offset = len(self.records)
        self.appends: list[int] = []
        self.append_error: Exception | None = None
        self.commit_error: Exception | None = None
        self.automatic = True
        self._changed = asyncio.Event()

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def prepare(
        self, records: Sequence[tuple[str, int]], *, atomic: bool
    ) -> Generator[None, None, list[tuple[str, int]]]:
        if len(records) > MAX_RECORDS_PER_TURN:
            yield
        if any(name == "large" for name, _ in records):
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
        return list(records)

    def append(self, groups: Sequence[list[tuple[str, int]]]) -> int:
        if self.append_error is not None:
            raise self.append_error
        self.appends.append(len(groups))
        for group in groups:
            self.records.extend(group)
        if self.automatic:
            self.commit(self.end_offset)
        return self.end_offset

    def commit(self, offset: int) -> None:
        self.committed_offset = offset
        self._changed.set()

    def fail(self, error: Exception) -> None:
        self.commit_error = error
        self._changed.set()

    async def wait_committed(self, end_offset: int) -> None:
        while self.committed_offset < end_offset:
            if self.commit_error is not None:
                raise self.commit_error
            self._changed.clear()
            await self._changed.wait()

    async def read_all(self) -> AsyncIterator[Sequence[tuple[int, tuple[str, int]]]]:
        for offset, record in enumerate(self.records):
            yield [(offset, record)]


class ObservedRuntime(Runtime[tuple[str, int]]):
    failures: list[BaseException]


async def start(log: MemoryLog | None = None) -> tuple[ObservedRuntime, Counter, MemoryLog]:
    timeline = Timeline()
    machine = Counter(timeline)
    log = log or MemoryLog()
    failures: list[BaseException] = []
    runtime = ObservedRuntime(machine, log, timeline, on_failed=failures.append)
    runtime.failures = failures
    await runtime.load()
    return runtime, machine, log


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_load_replays_everything_and_then_serves() -> None:
    runtime, machine, _ = await start(MemoryLog([("a", 4), ("a", 5)]))
    assert machine.events == ["loaded"] and machine.offsets == [0, 1]
    assert await runtime.run(lambda: machine.add("a")) == 6
    await runtime.close()


async def test_operations_that_queue_up_share_one_append_and_see_each_other() -> None:
    runtime, machine, log = await start()
    answers = await asyncio.gather(*(runtime.run(lambda: machine.add("a")) for _ in range(20)))
    assert answers == list(range(1, 21))
    assert log.appends == [20] and machine.offsets == list(range(20))
    await runtime.close()


async def test_no_response_is_sent_before_its_records_are_committed() -> None:
    runtime, machine, log = await start()
    log.automatic = False
    write = asyncio.create_task(runtime.run(lambda: machine.add("a")))
    read = asyncio.create_task(runtime.run(lambda: machine.read("a")))
    refusal = asyncio.create_task(runtime.run(lambda: machine.add("a", -1)))
    await settle()
    assert machine.values["a"] == 1
    assert not write.done() and not read.done() and not refusal.done()
    log.commit(1)
    await settle()
    assert await write == 1 and await read == 1
    with pytest.raises(ApiError, match="negative"):
        await refusal
    await runtime.close()


async def test_a_record_committed_by_its_append_is_answered_in_that_turn() -> None:
    """A log of one replica commits so: nothing has to wait."""

    class CommittedLog(MemoryLog):
        async def wait_committed(self, end_offset: int) -> None:
            raise AssertionError("there is nothing to wait for")

    runtime, machine, _ = await start(CommittedLog())
    answers = await asyncio.gather(runtime.run(lambda: machine.add("a")), runtime.run(lambda: machine.read("a")))
    assert answers == [1, 1]
    assert runtime.committed_offset == 1 and not runtime.failures
    await runtime.close()


async def test_a_failed_append_is_taken_back_and_the_leader_epoch_goes_on() -> None:
    runtime, machine, log = await start()
    await runtime.run(lambda: machine.add("a"))
    log.append_error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    answers = await asyncio.gather(
        runtime.run(lambda: machine.add("a")), runtime.run(lambda: machine.add("b")), return_exceptions=True
    )
    assert [error.code for error in answers if isinstance(error, ApiError)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    assert dict(machine.values) == {"a": 1}
    log.append_error = None
    assert await runtime.run(lambda: machine.add("a")) == 2
    await runtime.close()


async def test_an_operation_that_is_too_large_fails_alone() -> None:
    runtime, machine, _ = await start()
    small, large = await asyncio.gather(
        runtime.run(lambda: machine.add("a")), runtime.run(lambda: machine.add("large")), return_exceptions=True
    )
    assert small == 1 and isinstance(large, ApiError) and large.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "large" not in machine.values
    await runtime.close()


async def test_lost_records_end_the_leader_epoch_and_fail_every_caller() -> None:
    runtime, machine, log = await start()
    log.automatic = False
    writes = [asyncio.create_task(runtime.run(lambda: machine.add("a"))) for _ in range(3)]
    await settle()
    log.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    for write in writes:
        with pytest.raises(ApiError) as caught:
            await write
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert runtime.state is State.ENDED and machine.events == ["loaded", "unloaded"]
    assert len(runtime.failures) == 1
    await runtime.close()


async def test_unload_fails_the_parked_with_not_coordinator() -> None:
    runtime, machine, log = await start()
    log.automatic = False
    write = asyncio.create_task(runtime.run(lambda: machine.add("a")))
    await settle()
    runtime.unload()
    with pytest.raises(ApiError) as caught:
        await write
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError) as caught:
        await runtime.run(lambda: machine.read("a"))
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert not runtime.failures
    await runtime.close()


async def test_while_loading_callers_are_reported_so() -> None:
    timeline = Timeline()
    machine = Counter(timeline)
    runtime = Runtime(machine, MemoryLog([("a", 1)] * 50), timeline)
    with pytest.raises(ApiError) as caught:
        await runtime.run(lambda: machine.read("a"))
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    loading = asyncio.create_task(runtime.load())
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as caught:
        await runtime.run(lambda: machine.read("a"))
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await loading == 50
    await runtime.close()


async def test_unload_while_loading_stops_the_load() -> None:
    timeline = Timeline()
    machine = Counter(timeline)
    runtime = Runtime(machine, MemoryLog([("a", 1)] * 50), timeline)
    loading = asyncio.create_task(runtime.load())
    await asyncio.sleep(0)
    runtime.unload()
    assert await loading < 50 and machine.events == ["unloaded"]
    await runtime.close()


async def test_a_leadership_that_ended_before_its_load_begins_stays_ended() -> None:
    """The task that loads gets its first turn after the one in which the next leader is learned."""
    timeline = Timeline()
    machine = Counter(timeline)
    runtime = Runtime(machine, MemoryLog([("a", 1)]), timeline)
    loading = asyncio.create_task(runtime.load())
    runtime.unload()
    assert await loading == 0 and runtime.state is State.ENDED
    await runtime.close()


async def test_a_deadline_answers_request_timed_out() -> None:
    runtime, machine, log = await start()
    log.automatic = False
    with pytest.raises(ApiError) as caught:
        await runtime.run(lambda: machine.add("a"), timeout_ms=5)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    log.commit(1)
    await settle()
    assert await runtime.run(lambda: machine.read("a")) == 1
    await runtime.close()


async def test_a_bug_in_an_operation_harms_its_caller_alone() -> None:
    runtime, machine, _ = await start()

    def broken() -> Result[tuple[str, int], int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await runtime.run(broken)
    assert await runtime.run(lambda: machine.add("a")) == 1
    await runtime.close()


async def test_a_machine_that_cannot_replay_its_own_record_ends_the_leader_epoch() -> None:
    runtime, machine, _ = await start()
    with pytest.raises(ApiError):
        await runtime.run(lambda: machine.add("poison"))
    assert runtime.state is State.ENDED
    assert isinstance(runtime.failures[0], RuntimeError)
    await runtime.close()


async def test_a_caller_that_gave_up_before_its_turn_has_no_effect() -> None:
    runtime, machine, _ = await start()
    task = asyncio.create_task(runtime.run(lambda: machine.add("a")))
    await asyncio.sleep(0)
    # The operation is queued, its turn comes with the next pass of the loop.
    task.cancel()
    await settle()
    assert task.cancelled()
    await runtime.close()


async def test_an_unload_between_turns_answers_the_queue() -> None:
    runtime, machine, _ = await start()
    tasks = [asyncio.create_task(runtime.run(lambda: machine.add("a"))) for _ in range(1200)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    runtime.unload()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, int | ApiError) for answer in answers)
    await runtime.close()


MANY = 4 * MAX_RECORDS_PER_TURN + 1


class Meanwhile:
    """Another task on the loop, which notes how far the machine has come each time it runs."""

    def __init__(self, machine: Counter) -> None:
        self.seen = [0]
        self._machine = machine
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.seen.append(len(self._machine.offsets))
            await asyncio.sleep(0)

    async def most_in_one_turn(self) -> int:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.seen.append(len(self._machine.offsets))
        return max(after - before for before, after in itertools.pairwise(self.seen))


async def test_a_long_operation_yields_to_others() -> None:
    runtime, machine, log = await start()
    others = Meanwhile(machine)
    await settle()
    answers = await asyncio.gather(
        runtime.run(lambda: machine.add("a")),
        runtime.run(lambda: machine.add_many(MANY)),
        runtime.run(lambda: machine.add("a")),
    )
    assert answers == [1, 1, 2], "each operation saw the ones before, and none saw half of one"
    assert await others.most_in_one_turn() <= MAX_RECORDS_PER_TURN + 1
    assert log.appends == [1, 1, 1], "its records were appended together"
    assert machine.offsets == list(range(MANY + 2))
    await runtime.close()


async def test_many_operations_of_many_records_each_take_turns() -> None:
    runtime, machine, log = await start()
    others = Meanwhile(machine)
    await settle()
    await asyncio.gather(*(runtime.run(lambda: machine.add_many(MAX_RECORDS_PER_TURN // 2)) for _ in range(10)))
    assert await others.most_in_one_turn() <= MAX_RECORDS_PER_TURN * 3 // 2
    assert len(log.appends) > 1
    await runtime.close()


async def test_a_long_operation_whose_append_fails_is_taken_back_whole() -> None:
    runtime, machine, log = await start()
    assert await runtime.run(lambda: machine.add("a")) == 1
    long = asyncio.create_task(runtime.run(lambda: machine.add_many(MANY)))
    await asyncio.sleep(0)
    log.append_error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
        await long
    assert dict(machine.values) == {"a": 1}
    log.append_error = None
    assert await runtime.run(lambda: machine.add("a")) == 2
    await runtime.close()


async def test_a_long_operation_is_repeated_when_earlier_records_are_lost() -> None:
    runtime, machine, log = await start()
    log.append_error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
    before = asyncio.create_task(runtime.run(lambda: machine.add("a")))
    long = asyncio.create_task(runtime.run(lambda: machine.add_many(MANY)))
    with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
        await before
    log.append_error = None
    assert await long == 0, "it saw the one before, which was taken back"
    assert len(log.records) == MANY
    await runtime.close()


async def test_a_long_operation_is_decided_again_behind_records_of_the_logs_own() -> None:
    runtime, machine, log = await start()
    long = asyncio.create_task(runtime.run(lambda: machine.add_many(MANY)))
    while len(machine.offsets) < MAX_RECORDS_PER_TURN:  # noqa: ASYNC110 - each turn does a part
        await asyncio.sleep(0)
    log.records.append(("voters", 0))
    machine.offsets.clear()
    assert await long == 0
    assert machine.offsets[-MANY:] == list(range(1, MANY + 1))
    assert len(log.records) == MANY + 1
    await runtime.close()


async def test_a_long_operation_that_is_too_large_fails_alone() -> None:
    runtime, machine, log = await start()
    long = asyncio.create_task(runtime.run(lambda: Result([("large", 1)] * MANY, 1)))
    after = asyncio.create_task(runtime.run(lambda: machine.add("a")))
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        await long
    assert await after == 1 and log.records == [("a", 1)]
    await runtime.close()


async def test_an_unload_in_the_middle_of_a_long_operation_says_its_caller() -> None:
    runtime, machine, log = await start()
    long = asyncio.create_task(runtime.run(lambda: machine.add_many(MANY)))
    while not machine.offsets:  # noqa: ASYNC110 - each turn does a part
        await asyncio.sleep(0)
    runtime.unload()
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await long
    assert not log.records
    await runtime.close()


async def test_a_long_operation_that_cannot_be_replayed_ends_the_leader_epoch() -> None:
    runtime, _, log = await start()
    records = [("a", 1)] * MANY
    records[-1] = ("poison", 1)
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await runtime.run(lambda: Result(records, 1))
    assert runtime.state is State.ENDED and not log.records
    await runtime.close()


@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("record_count", [0, 1, MANY])
async def test_an_operation_in_steps_has_the_machine_alone_and_not_the_loop(steps: int, record_count: int) -> None:
    runtime, machine, log = await start()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    meanwhile = asyncio.create_task(others())
    before = turns
    answers = await asyncio.gather(
        runtime.run(lambda: machine.add("a")),
        runtime.run(lambda: machine.add_in_steps("a", steps, record_count=record_count)),
        runtime.run(lambda: machine.add("a")),
    )
    assert answers == [1, 2, 3 if record_count else 2], "each operation saw the ones before"
    assert turns - before >= steps
    assert machine.events == ["loaded", *["step"] * steps]
    assert log.records == [("a", 1), *[("a", 2)] * record_count, ("a", answers[2])]
    meanwhile.cancel()
    await asyncio.gather(meanwhile, return_exceptions=True)
    await runtime.close()


async def test_an_operation_may_be_refused_in_its_last_step() -> None:
    runtime, machine, log = await start()
    refused = asyncio.create_task(runtime.run(lambda: machine.add_in_steps("a", 3, record_count=-1)))
    after = asyncio.create_task(runtime.run(lambda: machine.add("a")))
    with pytest.raises(ApiError, match="negative"):
        await refused
    assert await after == 1 and log.records == [("a", 1)]
    await runtime.close()


async def test_an_operation_in_steps_begins_again_behind_records_of_the_logs_own() -> None:
    runtime, machine, log = await start()
    stepped = asyncio.create_task(runtime.run(lambda: machine.add_in_steps("a", 5)))
    while machine.events.count("step") < 3:  # noqa: ASYNC110 - each turn takes a step
        await asyncio.sleep(0)
    log.records.append(("voters", 0))
    assert await stepped == 1
    assert machine.events.count("step") >= 8
    assert machine.offsets == [1]
    await runtime.close()


async def test_an_unload_in_the_middle_of_steps_says_the_caller() -> None:
    runtime, machine, log = await start()
    stepped = asyncio.create_task(runtime.run(lambda: machine.add_in_steps("a", 500)))
    while machine.events.count("step") < 3:  # noqa: ASYNC110 - each turn takes a step
        await asyncio.sleep(0)
    runtime.unload()
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await stepped
    assert not log.records
    await runtime.close()


def test_a_runtime_changes_its_state_as_the_table_says_and_not_otherwise() -> None:
    def move(before: State, after: State) -> None:
        timeline = Timeline()
        runtime = Runtime(Counter(timeline), MemoryLog(), timeline)
        runtime._state = before
        runtime._to(after)
        assert runtime.state is after

    check_every_pair(TRANSITIONS, move)
