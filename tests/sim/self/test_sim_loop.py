"""The box keeps its own promises: order inside a host, virtual time, crashes without `finally`, equal traces."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.common.real_io import RealDisk, RealNetwork
from tests.sim.clock import SimClock
from tests.sim.loop import EscapedTheBoxError, SimLoop, SimulationStalledError
from tests.sim.progress import progress

HERE = Path(__file__)


def new_loop(seed: int = 1) -> SimLoop:
    return SimLoop(Random(seed))


def test_time_jumps_and_nothing_sleeps() -> None:
    loop = new_loop()

    async def scenario() -> float:
        started = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - started

    with loop:
        assert loop.run_world(scenario(), limit_s=10_000) == pytest.approx(3600)


def test_wall_clocks_jump_and_drift_and_monotonic_time_does_neither() -> None:
    loop = new_loop()
    clock, right = SimClock(loop), SimClock(loop)

    async def scenario() -> None:
        clock.jump(-86_400_000)
        assert clock.now_ms() == right.now_ms() - 86_400_000
        clock.jump(86_400_000)
        clock.drift(200_000)
        assert clock.now_ms() == right.now_ms(), "a drift begins without a jump"
        await asyncio.sleep(10)
        assert clock.now_ms() == right.now_ms() + 2000
        clock.drift(0)
        await asyncio.sleep(10)
        assert clock.now_ms() == right.now_ms() + 2000
        clock.drift(-200_000)
        await asyncio.sleep(20)
        assert clock.now_ms() == right.now_ms() - 2000
        assert clock.monotonic_ms() == right.monotonic_ms()

    with loop:
        loop.run_world(scenario(), limit_s=100)


def test_callbacks_of_one_host_run_first_in_first_out_and_hosts_interleave() -> None:
    orders = set()
    for seed in range(20):
        loop = new_loop(seed)
        seen: list[Any] = []
        for number in range(10):
            for host in ("a", "b"):
                loop.call_on(host, seen.append, (host, number))
        with loop:
            loop.run_world(asyncio.sleep(1), limit_s=10)
            for host in ("a", "b"):
                assert [number for name, number in seen if name == host] == list(range(10))
            orders.add(tuple(seen))
    assert len(orders) > 10


def test_a_crash_runs_no_finally_and_a_pause_keeps_everything() -> None:
    loop, events = new_loop(), []

    async def works(name: str) -> None:
        try:
            await asyncio.sleep(5)
            events.append(f"{name} went on")
        finally:
            events.append(f"{name} finally")

    async def scenario() -> None:
        loop.spawn("crashes", works("crashes"))
        loop.spawn("pauses", works("pauses"))
        await asyncio.sleep(1)
        loop.crash("crashes")
        loop.pause("pauses")
        await asyncio.sleep(60)
        assert events == []
        loop.resume("pauses")
        await asyncio.sleep(1)

    with loop:
        loop.run_world(scenario(), limit_s=100)
        assert events == ["pauses went on", "pauses finally"]


def test_the_same_seed_leaves_the_same_trace_and_another_does_not() -> None:
    def trace(seed: int) -> str:
        loop = new_loop(seed)

        async def ticks() -> None:
            for _ in range(20):
                await asyncio.sleep(0.001)

        async def scenario() -> None:
            await asyncio.gather(*(loop.spawn(host, ticks()) for host in "abcd"))

        with loop:
            loop.run_world(scenario(), limit_s=10)
            return loop.trace.digest()

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def line_of(text: str) -> str:
    """This file and the number of the only line of it that ends so, as a report of who waits names it."""
    (number,) = [at for at, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(text)]
    return f"{HERE.name}:{number} "


def test_a_stall_names_the_tasks_that_wait_where_and_for_what() -> None:
    loop = new_loop()

    async def inner() -> None:
        await loop.create_future()  # waits for ever

    async def outer() -> None:
        await inner()

    async def scenario() -> None:
        task = loop.spawn("a", outer(), name="the waiting one")
        await task

    with loop:
        with pytest.raises(SimulationStalledError) as caught:
            loop.run_world(scenario(), limit_s=1000)
        lines = str(caught.value).splitlines()
        (first,) = [line for line in lines if line.startswith("  a: ")]
        assert "task 'the waiting one'" in first
        assert "outer" in first
        assert line_of("# waits for ever") in first
        assert first.endswith("in inner, waits for a future")
        (second,) = [line for line in lines if line.startswith("  world: ")]
        assert second.endswith("in scenario, waits for task 'the waiting one'")
        assert loop.time() < 1001, "a stall is seen when it begins, not when the time is over"


def test_a_stall_is_seen_though_hosts_that_are_paused_could_run() -> None:
    loop = new_loop()

    async def works() -> None:
        await asyncio.sleep(1)

    async def scenario() -> None:
        task = loop.spawn("a", works(), name="worker")
        loop.pause("a")
        await task

    with loop, pytest.raises(SimulationStalledError, match=r"a \(paused\): task 'worker'"):
        loop.run_world(scenario(), limit_s=1000)


def test_callbacks_for_ever_at_one_moment_are_a_stall() -> None:
    loop = new_loop()

    async def spins() -> None:
        while True:  # noqa: ASYNC110 - what is to be noticed
            await asyncio.sleep(0)  # spins here

    async def scenario() -> None:
        await loop.spawn("a", spins(), name="spinner")

    with loop:
        with pytest.raises(SimulationStalledError, match="no time went by") as caught:
            loop.run_world(scenario(), limit_s=10)
        assert "task 'spinner'" in str(caught.value)
        assert line_of("# spins here") in str(caught.value)


def test_a_run_that_takes_too_long_ends_and_names_waiting_tasks() -> None:
    loop = new_loop()

    async def ticks() -> None:
        while True:  # noqa: ASYNC110 - what is to be noticed
            await asyncio.sleep(0.5)  # ticks here

    async def scenario() -> None:
        await loop.spawn("a", ticks(), name="clock")

    with loop:
        with pytest.raises(TimeoutError) as caught:
            loop.run_world(scenario(), limit_s=10)
        assert "a: task 'clock'" in str(caught.value)
        assert line_of("# ticks here") in str(caught.value)
        assert loop.time() == pytest.approx(1010, abs=1)


def test_tasks_that_block_a_world_are_named_before_cancellation() -> None:
    loop = new_loop()
    problems: list[str] = []

    async def never_ends() -> None:
        await loop.create_future()  # waits for good

    async def scenario() -> None:
        task = loop.spawn("a", never_ends(), name="the last client")
        async with progress(loop, 5, lambda: f"done: {task.done()}", problems):
            await asyncio.gather(task)
        async with progress(loop, 5, lambda: "not reported", problems):
            await asyncio.sleep(4)

    with loop:
        loop.run_world(scenario(), limit_s=100)
        (problem,) = problems
        assert problem.startswith("no progress 5 s after the faults ended; done: False\n")
        assert "a: task 'the last client'" in problem
        assert line_of("# waits for good") in problem


def test_a_dropped_world_leaves_no_event_loop_to_the_collector() -> None:
    made = []

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            made.append(super().new_event_loop())
            return made[-1]

    async def gathers_at_the_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.gather()

    async def scenario() -> None:
        loop.spawn("a", gathers_at_the_end())
        await asyncio.sleep(5)
        loop.crash("a")

    policy = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    try:
        loop = new_loop()
        with loop:
            loop.run_world(scenario(), limit_s=10)
        gc.collect()
    finally:
        asyncio.set_event_loop_policy(policy)
        for each in made:
            each.close()
    assert not made


async def takes_a_thread() -> None:
    await asyncio.to_thread(threading.get_ident)


async def takes_a_connection() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


async def starts_a_thread() -> None:
    threading.Thread(target=print).start()


async def starts_a_pool() -> None:
    ThreadPoolExecutor(1).submit(print)


async def makes_a_socket() -> None:
    socket.socket()


async def starts_a_process() -> None:
    subprocess.Popen(["true"])  # noqa: ASYNC220 - what is to be noticed


async def opens_a_file() -> None:
    with open(__file__):  # noqa: ASYNC230 - what is to be noticed
        pass


async def opens_a_path() -> None:
    Path(__file__).read_text()  # noqa: ASYNC240 - what is to be noticed


async def opens_a_descriptor() -> None:
    os.open(__file__, os.O_RDONLY)


async def uses_the_real_disk() -> None:
    RealDisk().open(Path(__file__), read_only=True)


async def uses_the_real_network() -> None:
    await RealNetwork().connect(asyncio.Protocol, "127.0.0.1", 9)


async def sleeps_for_real() -> None:
    time.sleep(0)  # noqa: ASYNC251 - what is to be noticed


@pytest.mark.parametrize(
    "escape",
    [
        takes_a_thread,
        takes_a_connection,
        starts_a_thread,
        starts_a_pool,
        makes_a_socket,
        starts_a_process,
        opens_a_file,
        opens_a_path,
        opens_a_descriptor,
        uses_the_real_disk,
        uses_the_real_network,
        sleeps_for_real,
    ],
    ids=lambda escape: escape.__name__,
)
def test_real_threads_sockets_files_and_sleeps_fail_at_once(escape: Callable[[], Coroutine[None, None, None]]) -> None:
    loop = new_loop()
    with loop:
        with pytest.raises(EscapedTheBoxError, match=escape.__name__) as caught:
            loop.run_world(escape(), limit_s=10)
        assert HERE.name in str(caught.value), "the stack of who did it"
        assert loop.time() == 1000, "at once"


def test_the_lid_is_off_when_the_world_is_over() -> None:
    loop = new_loop()
    with loop, pytest.raises(EscapedTheBoxError):
        loop.run_world(makes_a_socket(), limit_s=10)
    socket.socket().close()
    assert HERE.read_text()
    thread = threading.Thread(target=bool)
    thread.start()
    thread.join()


def test_a_thread_that_ran_before_is_not_in_the_box() -> None:
    loop = new_loop()
    go_on, slept = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def beside() -> None:
        go_on.wait()
        try:
            time.sleep(0)
        except BaseException as error:
            failures.append(error)
        slept.set()

    async def waits_for_it() -> None:
        go_on.set()
        slept.wait(10)

    thread = threading.Thread(target=beside)
    thread.start()
    with loop:
        loop.run_world(waits_for_it(), limit_s=10)
        thread.join()
        assert not failures


def test_code_that_escapes_and_catches_everything_still_fails() -> None:
    loop = new_loop()

    async def hides_it() -> None:
        with contextlib.suppress(Exception):
            threading.Thread(target=print).start()

    with loop, pytest.raises(EscapedTheBoxError, match="hides_it"):
        loop.run_world(hides_it(), limit_s=10)
