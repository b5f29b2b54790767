"""The box keeps its own promises: order inside a host, virtual time, crashes without `finally`, equal traces."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
import threading
from random import Random

import pytest

from tests.sim.loop import EscapedTheBoxError, SimLoop, SimulationStalledError


def new_loop(seed: int = 1) -> SimLoop:
    return SimLoop(Random(seed))


def test_time_jumps_and_nothing_sleeps() -> None:
    loop = new_loop()

    async def scenario() -> float:
        started = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - started

    assert loop.run_world(scenario(), limit_s=10_000) == pytest.approx(3600)
    loop.dispose()


def test_callbacks_of_one_host_run_first_in_first_out_and_hosts_interleave() -> None:
    orders = set()
    for seed in range(20):
        loop, seen = new_loop(seed), []
        for number in range(10):
            for host in ("a", "b"):
                loop.call_on(host, seen.append, (host, number))
        loop.run_world(asyncio.sleep(1), limit_s=10)
        for host in ("a", "b"):
            assert [number for name, number in seen if name == host] == list(range(10))
        orders.add(tuple(seen))
        loop.dispose()
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

        loop.run_world(scenario(), limit_s=10)
        result = loop.trace.digest()
        loop.dispose()
        return result

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def test_a_stall_names_the_tasks_that_wait() -> None:
    loop = new_loop()

    async def waits_for_ever() -> None:
        await loop.create_future()

    with pytest.raises(SimulationStalledError, match="waits_for_ever"):
        loop.run_until_complete(loop.spawn("a", waits_for_ever()))
    loop.dispose()


def test_a_run_that_takes_too_long_ends() -> None:
    loop = new_loop()
    with pytest.raises(TimeoutError):
        loop.run_world(asyncio.sleep(100), limit_s=10)
    loop.dispose()


def test_what_is_dropped_leaves_no_event_loop_to_the_collector() -> None:
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
        loop.run_world(scenario(), limit_s=10)
        loop.dispose()
        gc.collect()
    finally:
        asyncio.set_event_loop_policy(policy)
        for each in made:
            each.close()
    assert not made


def test_real_threads_and_sockets_fail_at_once() -> None:
    loop = new_loop()

    async def takes_a_thread() -> None:
        await asyncio.to_thread(threading.get_ident)

    async def takes_a_connection() -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    async def starts_a_thread() -> None:
        threading.Thread(target=print).start()

    async def makes_a_socket() -> None:
        socket.socket()

    def run_something() -> None:
        subprocess.Popen(["true"])

    async def starts_a_process() -> None:
        run_something()

    for escape in (takes_a_thread, takes_a_connection, starts_a_thread, makes_a_socket, starts_a_process):
        with pytest.raises(EscapedTheBoxError, match=escape.__name__):
            loop.run_world(escape(), limit_s=10)
    loop.dispose()
    socket.socket().close()


def test_who_reaches_out_and_catches_everything_fails_all_the_same() -> None:
    loop = new_loop()

    async def hides_it() -> None:
        with contextlib.suppress(Exception):
            threading.Thread(target=print).start()

    loop.run_world(hides_it(), limit_s=10)
    (failure,) = loop.failures
    assert "hides_it" in str(failure)
    loop.dispose()
