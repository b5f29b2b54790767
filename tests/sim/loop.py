"""An event loop on virtual time with one ready queue for each simulated host.

Inside a host callbacks run first in, first out, which is asyncio's contract; between hosts the seed chooses, so that
every interleaving of machines can happen. Time jumps to the next timer only when no host can run. A host that is
paused keeps its queue and its timers until it is resumed; a host that crashed loses both, and none of its `finally`
blocks run.

Which host a callback belongs to stands in its context (`current_host`), which tasks and timers inherit.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import math
import sys
import warnings
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NoReturn, Self

from odradek.common.buggify import Hook, simulated
from odradek.common.real_threads import ThreadWork
from tests.sim import sandbox, waiting
from tests.sim.sandbox import EscapedTheBoxError as EscapedTheBoxError
from tests.sim.trace import Trace

WORLD = "world"
current_host: contextvars.ContextVar[str] = contextvars.ContextVar("simulated host", default=WORLD)

# Finally blocks of one coroutine that await something, one after the other.
MAX_AWAITS_WHILE_CLOSING = 20
# Callbacks at one moment of virtual time. A run of minutes has a few hundred thousand in all.
MAX_STEPS_WITHOUT_TIME = 200_000
# Cancelled timers that the heap holds at any rate: to drop them costs a walk over all.
MIN_CANCELLED_TIMERS = 100

# Loops that have run and still refer to coroutines, which the collector would close, with warnings, in another test.
UNDISPOSED: dict[SimLoop, None] = {}


class SimulationStalledError(AssertionError):
    """No callback will ever run again though a task still waits, or time does not advance though callbacks run."""


class RunTooLongError(TimeoutError):
    """The virtual time of a run is over, though its scenario has not ended."""


class HostQueue:
    """The callbacks and tasks of one host."""

    __slots__ = ("crashed", "name", "paused", "ready", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.crashed = False
        self.ready: deque[SimHandle | SimTimer] = deque()
        # Insertion-ordered, because walks over tasks must have the same order in every run.
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.paused = False


class SimFuture(asyncio.Future[Any]):
    """A future that knows its host: errors of what a crashed host waited for are never retrieved."""

    __slots__ = ("owner",)

    def __init__(self, loop: SimLoop, owner: HostQueue) -> None:
        super().__init__(loop=loop)
        self.owner = owner


class SimTask(asyncio.Task[Any]):
    """The same for a task."""

    __slots__ = ("owner",)
    owner: HostQueue


class SimHandle(asyncio.Handle):
    """A callback that knows on which host it runs."""

    __slots__ = ("host",)
    host: str
    _context: contextvars.Context


class SimTimer(asyncio.TimerHandle):
    """The same for one that waits for its time."""

    __slots__ = ("host",)
    host: str
    _context: contextvars.Context


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks of many hosts in one thread, in an order and at times that only the seed decides.

    Args:
        random: decides which host runs next.
        start_s: virtual monotonic time at the start, in seconds.
    """

    def __init__(self, random: Random, *, start_s: float = 1000.0) -> None:
        super().__init__()
        self._random = random
        self._now = start_s
        self._sequence = 0
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._cancelled_timers = 0
        self._hosts: dict[str, HostQueue] = {WORLD: HostQueue(WORLD)}
        self._graveyard: list[HostQueue] = []
        self._deadline = math.inf
        self._escape: EscapedTheBoxError | None = None
        self._steps_when_time_moved = 0
        # Decides at every point of the product that asks to be held up.
        self.buggify: Hook | None = None
        self.steps = 0
        self.trace = Trace()
        self.failures: list[BaseException] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # asyncio allows any that makes tasks
        self.set_exception_handler(self._on_exception)

    # -- time ---------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual monotonic seconds."""
        return self._now

    def record(self, *facts: object) -> None:
        """Fold facts into the trace, which is equal for equal seeds."""
        self.trace.record(repr(facts))

    # -- hosts --------------------------------------------------------------------------------------------------

    def spawn(self, host: str, coroutine: Coroutine[Any, Any, Any], *, name: str = "") -> asyncio.Task[Any]:
        """Start a task that belongs to `host`, and so do all that it starts in its turn."""
        context = contextvars.copy_context()
        context.run(current_host.set, host)
        return self.create_task(coroutine, name=name or None, context=context)

    def call_on(self, host: str, callback: Callable[..., Any], *args: Any, delay_s: float = 0.0) -> asyncio.Handle:
        """Run a plain callback on `host`, after `delay_s` of virtual time."""
        context = contextvars.copy_context()
        context.run(current_host.set, host)
        if delay_s <= 0:
            return self.call_soon(callback, *args, context=context)
        return self.call_later(delay_s, callback, *args, context=context)

    def pause(self, host: str) -> None:
        """Stop running a host's callbacks while time goes on, as SIGSTOP does."""
        self._host(host).paused = True

    def resume(self, host: str) -> None:
        self._host(host).paused = False

    def crash(self, host: str) -> None:
        """Drop every callback, timer and task of a host at once; no `finally` runs, as after kill -9."""
        queue = self._hosts.pop(host, None)
        if queue is None:
            return
        for task in queue.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # of CPython, in no stub
        queue.ready.clear()
        queue.crashed = True
        # A coroutine that is collected is closed, which would run its finally blocks: so it is kept.
        self._graveyard.append(queue)
        self._filter_timers(lambda timer: timer.host != host)

    def tasks_of(self, host: str) -> list[asyncio.Task[Any]]:
        """The unfinished tasks of a host, oldest first."""
        queue = self._hosts.get(host)
        return [task for task in queue.tasks if not task.done()] if queue else []

    def task_count(self, host: str) -> int:
        """The tasks of a host, with those that have ended in this moment."""
        queue = self._hosts.get(host)
        return len(queue.tasks) if queue else 0

    def timer_count(self) -> int:
        """Timers that are set and not cancelled."""
        return len(self._timers) - self._cancelled_timers

    def _host(self, name: str) -> HostQueue:
        queue = self._hosts.get(name)
        if queue is None:
            queue = self._hosts[name] = HostQueue(name)
        return queue

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = SimTask(coroutine, loop=loop, **options)
        context: contextvars.Context | None = options.get("context")
        host = context.get(current_host, WORLD) if context is not None else current_host.get()
        owner = task.owner = self._host(host)
        owner.tasks[task] = None
        task.add_done_callback(lambda done: owner.tasks.pop(done, None))
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(self, self._host(current_host.get()))

    # -- asyncio's contract -------------------------------------------------------------------------------------

    def get_debug(self) -> bool:
        """Never: every handle asks."""
        return False

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        handle.host = handle._context.get(current_host, WORLD)
        self._host(handle.host).ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = SimTimer(when, callback, args, self, context)
        timer.host = timer._context.get(current_host, WORLD)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # of CPython, in no stub
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled timer in the heap until its time comes, or until most are cancelled, as asyncio does.

        A request that is answered cancels a timeout that lies half a minute ahead.
        """
        if not handle._scheduled:  # type: ignore[attr-defined]  # of CPython, in no stub
            return
        self._cancelled_timers += 1
        if self._cancelled_timers > MIN_CANCELLED_TIMERS and 2 * self._cancelled_timers > len(self._timers):
            self._filter_timers(lambda timer: not timer.cancelled())

    def _filter_timers(self, keep: Callable[[SimTimer], bool]) -> None:
        """Drop the other timers. Time and sequence alone order those that stay."""
        kept = []
        for entry in self._timers:
            if keep(entry[2]):
                kept.append(entry)
            else:
                entry[2]._scheduled = False  # type: ignore[attr-defined]  # of CPython, in no stub
        self._timers = kept
        heapq.heapify(self._timers)
        self._cancelled_timers = sum(entry[2].cancelled() for entry in kept)

    def _pop_timer(self) -> SimTimer:
        timer = heapq.heappop(self._timers)[2]
        timer._scheduled = False  # type: ignore[attr-defined]  # of CPython, in no stub
        self._cancelled_timers -= timer.cancelled()
        return timer

    def _run_once(self) -> None:
        if self._timers and self._timers[0][0] <= self._now:
            self._wake_timers()
        runnable = [queue for queue in self._hosts.values() if queue.ready and not queue.paused]
        if not runnable:
            self._jump()
            return
        queue = runnable[0] if len(runnable) == 1 else self._random.choice(runnable)
        handle = queue.ready.popleft()
        if handle._cancelled:
            return
        self.steps += 1
        if self.steps - self._steps_when_time_moved > MAX_STEPS_WITHOUT_TIME:
            self._raise_stalled(handle)
        self.trace.step(self._now, queue.name)
        handle._run()
        if self._escape is not None:
            # It is raised at once, even if the code has caught it.
            error, self._escape = self._escape, None
            raise error

    def _wake_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self._now:
            timer = self._pop_timer()
            if not timer.cancelled():
                self._host(timer.host).ready.append(timer)

    def _jump(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            self._pop_timer()
        if not self._timers:
            text = "nothing can run and nothing is scheduled; waiting are:"
            raise SimulationStalledError(f"{text}\n{self.who_waits()}")
        when = max(self._now, self._timers[0][0])
        if when > self._deadline:
            raise RunTooLongError(f"the run's virtual time is over; waiting are:\n{self.who_waits()}")
        self._now = when
        self._steps_when_time_moved = self.steps

    def _raise_stalled(self, handle: asyncio.Handle) -> NoReturn:
        self._steps_when_time_moved = self.steps
        text = f"{MAX_STEPS_WITHOUT_TIME} callbacks ran and no time went by, the last of them {handle!r}; waiting are:"
        raise SimulationStalledError(f"{text}\n{self.who_waits()}")

    def who_waits(self, *hosts: str) -> str:
        """A line for each unfinished task of these hosts, or of all, with the line of source at which it waits."""
        queues = [queue for queue in self._hosts.values() if not hosts or queue.name in hosts]
        waits = [
            (f"{queue.name}{' (paused)' if queue.paused else ''}", task) for queue in queues for task in queue.tasks
        ]
        return waiting.report(waits)

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there is no selector, so there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake."""

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        future = context.get("future")
        if isinstance(future, SimFuture | SimTask) and future.owner.crashed:
            return
        self.failures.append(context.get("exception") or AssertionError(context["message"]))

    # -- the sandbox ------------------------------------------------------------------------------------------------

    def _on_escape(self, error: EscapedTheBoxError) -> None:
        self._escape = self._escape or error

    def _escaped(self, what: str) -> NoReturn:
        error = sandbox.escaped(what)
        self._on_escape(error)
        raise error

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        if not isinstance(func, ThreadWork):
            self._escaped(f"a thread for {func!r}")
        future = self.create_future()
        try:
            future.set_result(func())
        except Exception as error:
            future.set_exception(error)
        return future

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        self._escaped("a real connection")

    async def create_server(self, *args: Any, **options: Any) -> Any:
        self._escaped("a real server")

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        self._escaped("a name look-up")

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        self._escaped("a process")

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        self._escaped("a signal handler")

    # -- running ------------------------------------------------------------------------------------------------

    def run_world(self, coroutine: Coroutine[Any, Any, Any], *, limit_s: float) -> Any:
        """Run a coroutine to its end, and return what it returns.

        Raises:
            RunTooLongError: after `limit_s` of virtual time.
            SimulationStalledError: nothing can ever happen again, or everything happens at one moment; the text of both
                says which tasks wait, where and for what.
            EscapedTheBoxError: somebody reached for a real thing, though it may have been caught there.
        """
        before = events._get_running_loop()
        assert before is None, "a simulation cannot run inside another loop"
        self._deadline = self._now + limit_s
        hook = sandbox.only_here(self.buggify, elsewhere=_is_continued) if self.buggify is not None else _is_continued
        self._steps_when_time_moved = self.steps
        UNDISPOSED[self] = None
        with sandbox.closed(self._on_escape), simulated(hook):
            return self.run_until_complete(self.spawn(WORLD, coroutine, name="scenario"))

    def dispose(self) -> None:
        """Let go of everything at the end of a run. The hosts' ports must be dead by now.

        Coroutines that were dropped in mid-flight are closed here, at once and outside of any loop: were they left to
        the collector, their finally blocks would run in the middle of the next run, and find its loop.
        """
        UNDISPOSED.pop(self, None)
        for queue in self._hosts.values():
            for task in queue.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # of CPython, in no stub
        self.close()
        # A finally block that asks asyncio for its loop is refused, as after `asyncio.run`: it would get a new one,
        # which no one closes.
        asyncio.set_event_loop(None)
        hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for queue in [*self._hosts.values(), *self._graveyard]:
                    for task in list(queue.tasks):
                        _close(task.get_coro())
                self._hosts.clear()
                self._timers.clear()
                self._graveyard.clear()
                self._ready.clear()  # type: ignore[attr-defined]  # of CPython, in no stub
                gc.collect()
        finally:
            sys.unraisablehook = hook

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def __del__(self) -> None:
        """Give no warning for a loop that was not closed: it has no selector and no descriptor that could leak."""


async def _is_continued(point: str) -> None:
    """A point in a world that delays no host."""


def _close(coroutine: Any) -> None:
    """End a coroutine that was dropped. One that awaits in its finally blocks is asked again.

    A traceback of a failed run, or a captured log line, may still refer to it: otherwise the garbage collector would
    close it some time later, with a warning.
    """
    for _ in range(MAX_AWAITS_WHILE_CLOSING):
        try:
            coroutine.close()
        except BaseException:
            continue
        return
