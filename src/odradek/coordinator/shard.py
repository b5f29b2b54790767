"""One partition of a coordinator's topic during one leadership: its runtime, and the tasks that end with it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.common.errors import OdradekError
from odradek.statemachine.runtime import MachineLog, Runtime

if TYPE_CHECKING:
    from odradek.common.log_lines import EventLogger
    from odradek.statemachine.machine import StateMachine
    from odradek.statemachine.timeline import Timeline

RecordT = TypeVar("RecordT")
T = TypeVar("T")


class CoordinatorShard(ABC, Generic[RecordT]):
    """The common part of the shards of groups and transactions; a `HostedShard`."""

    # Errors that a task returns to its caller, and that are no bug if the caller has disconnected.
    EXPECTED: tuple[type[BaseException], ...] = (OdradekError,)

    def __init__(
        self,
        partition_id: int,
        leader_epoch: int,
        machine: StateMachine[RecordT],
        log: MachineLog[RecordT, Any],
        timeline: Timeline,
        *,
        event_log: EventLogger,
    ) -> None:
        self.partition_id = partition_id
        self.leader_epoch = leader_epoch
        self.runtime: Runtime[RecordT] = Runtime(machine, log, timeline, on_failed=self._on_failed)
        self._event_log = event_log
        self._tasks: dict[asyncio.Task[object], None] = {}

    def start(self) -> None:
        """Start to load."""
        self.spawn(self.load())

    @abstractmethod
    async def load(self) -> None:
        """Replay the partition. An unreadable log ends the leadership."""

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Run in a task that `close` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, self.EXPECTED):
            # The caller may have disconnected: the error is logged nowhere else.
            self._event_log.bug("a task of the coordinator failed", error, partition=self.partition_id)

    async def every(self, interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
        """Repeat a job while this shard is active, also after a failure."""
        while self.runtime.active:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await job()
            except Exception as error:
                # Timed-out transactions block readers: a failure to end one must not stop the job.
                self._event_log.bug("a periodic job of the coordinator failed", error, partition=self.partition_id)

    def _on_failed(self, error: BaseException) -> None:
        self._event_log.error("coordinator unloaded", partition=self.partition_id, error=error)
        self._leadership_ended()

    def _leadership_ended(self) -> None:
        """Answer requests that wait for this shard itself, not for an operation of its machine."""

    def cancel_tasks(self) -> None:
        """End all tasks but the one that calls."""
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    def resign(self) -> None:
        """Stop at once: waiting clients look the coordinator up again."""
        self.runtime.unload()
        self._leadership_ended()

    async def close(self) -> None:
        """Resign, and wait for the shard's tasks."""
        self.resign()
        await self.runtime.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
