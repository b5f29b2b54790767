"""The budget of request bytes: the order of reservations, their sizes, and how long a request may take to come."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.server.network.connection import Connection
from odradek.server.network.listeners import ConnectionConfig
from odradek.server.network.request_memory import (
    FREE_BYTES,
    GRACE_MS,
    LARGE_BYTES,
    RequestMemory,
    allowed_ms,
    capacity_bytes,
    stall_ms,
)
from tests.support.nodes.listener import HEARTBEAT_VERSION, Client, ScriptedListener
from tests.support.waiting import eventually_async

MIB = 2**20
HOST = "10.0.0.1"


class Waiter:
    def __init__(self) -> None:
        self.granted: list[int] = []

    def memory_granted(self, size_bytes: int) -> None:
        self.granted.append(size_bytes)


class HandClock:
    """Goes when it is pushed."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.mark.parametrize(
    ("configured", "memory", "expected"),
    [
        (5 * MIB, 2**40, 5 * MIB),
        (-1, None, 1024 * MIB),
        (-1, 300 * MIB, 75 * MIB),
        (-1, 2**40, 1024 * MIB),
        (-1, 10 * MIB, 32 * MIB),
    ],
)
def test_without_a_setting_the_budget_is_a_share_of_the_memory(
    configured: int, memory: int | None, expected: int
) -> None:
    assert capacity_bytes(configured, memory) == expected


class TestBudget:
    def test_reservations_are_served_in_order(self) -> None:
        memory = RequestMemory(20 * MIB)
        first, second, third = Waiter(), Waiter(), Waiter()
        assert memory.reserve(first, 6 * MIB, HOST)
        assert not memory.reserve(second, 6 * MIB, HOST)
        assert not memory.reserve(third, 3 * MIB, HOST), "it would fit, and waits behind the one that came before"
        assert not memory.reserve(second, 6 * MIB, HOST), "to ask once more changes nothing"
        assert memory.is_short and memory.waiting_count == 2
        memory.release(6 * MIB)
        assert (second.granted, third.granted) == ([6 * MIB], [3 * MIB])
        assert (memory.is_short, memory.held_bytes) == (False, 9 * MIB)

    def test_addresses_take_turns(self) -> None:
        memory = RequestMemory(20 * MIB)
        crowd, other = [Waiter() for _ in range(20)], Waiter()
        assert memory.reserve(Waiter(), 6 * MIB, HOST)
        assert not any(memory.reserve(waiter, 6 * MIB, HOST) for waiter in crowd)
        assert not memory.reserve(other, 6 * MIB, "10.0.0.2")
        for _ in range(2):
            memory.release(6 * MIB)
        assert other.granted == [6 * MIB], "it waits for one of them, not for all"
        assert [waiter.granted for waiter in crowd[:2]] == [[6 * MIB], []]
        memory.cancel_wait(crowd[1], HOST)
        memory.release(6 * MIB)
        assert crowd[2].granted == [6 * MIB]

    def test_large_requests_leave_half_to_small_ones(self) -> None:
        memory = RequestMemory(20 * MIB)
        assert memory.reserve(Waiter(), 10 * MIB, HOST)
        assert not memory.reserve(Waiter(), LARGE_BYTES + 1, HOST)
        assert all(memory.reserve(Waiter(), MIB, HOST) for _ in range(10))
        assert not memory.reserve(Waiter(), MIB, HOST)

    def test_a_request_larger_than_the_budget_is_read_alone(self) -> None:
        memory = RequestMemory(20 * MIB)
        small, large = Waiter(), Waiter()
        assert memory.reserve(small, 3 * MIB, HOST)
        assert not memory.reserve(large, 100 * MIB, HOST)
        memory.release(3 * MIB)
        assert large.granted == [100 * MIB]
        assert not memory.reserve(small, 3 * MIB, HOST)
        memory.release(100 * MIB)
        assert small.granted == [3 * MIB]

    def test_a_cancelled_reservation_lets_others_in(self) -> None:
        memory = RequestMemory(20 * MIB)
        gone, next_one = Waiter(), Waiter()
        assert memory.reserve(Waiter(), 5 * MIB, HOST)
        assert not memory.reserve(gone, 9 * MIB, HOST)
        assert not memory.reserve(next_one, 4 * MIB, HOST)
        memory.cancel_wait(gone, HOST)
        assert (gone.granted, next_one.granted) == ([], [4 * MIB])

    def test_read_ahead_bytes_shorten_reads_and_block_no_reservation(self) -> None:
        memory = RequestMemory(20 * MIB)
        memory.read_ahead(5 * MIB)
        assert memory.is_short
        assert memory.reserve(Waiter(), 10 * MIB, HOST)
        memory.read_ahead(-1)
        assert not memory.is_short

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 12 * MIB)), max_size=60))
    def test_all_are_served_in_the_end_and_never_too_much_is_held(self, steps: list[tuple[int, int]]) -> None:
        memory = RequestMemory(20 * MIB)
        waiters = [Waiter() for _ in range(10)]
        asked: dict[int, int] = {}
        for number, size in steps:
            if number in asked:
                if waiters[number].granted:
                    del asked[number]
                    memory.release(waiters[number].granted.pop())
            else:
                asked[number] = size
                if memory.reserve(waiters[number], size, HOST):
                    waiters[number].granted.append(size)
            held = [waiter.granted[0] for waiter in waiters if waiter.granted]
            assert memory.held_bytes == sum(held)
            for half in ([s for s in held if s > LARGE_BYTES], [s for s in held if s <= LARGE_BYTES]):
                assert sum(half) <= 10 * MIB or len(half) == 1
        for _ in range(10):
            for waiter in waiters:
                if waiter.granted:
                    memory.release(waiter.granted.pop())
        assert memory.held_bytes == memory.waiting_count == 0 and not memory.is_short


class TestTime:
    def test_the_time_for_a_request_grows_with_its_size(self) -> None:
        assert allowed_ms(0, -1, pressed=False) == GRACE_MS
        assert allowed_ms(40_000, 600_000, pressed=False) > 40_000 / 3, "3 KB a second are enough"
        assert allowed_ms(MIB, 600_000, pressed=False) > MIB / 3
        assert allowed_ms(100 * MIB, 600_000, pressed=False) < 12 * 60_000
        assert allowed_ms(100 * MIB, 600_000, pressed=True) < 2 * 60_000

    def test_a_short_limit_for_idle_connections_shortens_it(self) -> None:
        assert allowed_ms(0, 1000, pressed=False) == 5000
        assert stall_ms(1000, pressed=False) == 1000
        assert stall_ms(-1, pressed=False) == GRACE_MS
        assert stall_ms(600_000, pressed=True) < GRACE_MS


async def send_slowly(
    listener: ScriptedListener, clock: HandClock, client: Client, data: bytes, step: int, pause_ms: int
) -> bool:
    """Send so many bytes at a time with pauses of the clock; whether the node has let us."""
    (connection,) = listener.connections
    for position in range(0, len(data), step):
        if not listener.connections:
            return False
        clock.ms += pause_ms
        await client.send_bytes(data[position : position + step])
        await eventually_async(lambda: connection.last_active_ms == clock.ms or not listener.connections)
        listener.dispatcher.close_slow(clock.ms)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return bool(listener.connections)


def beat(client: Client, size: int) -> bytes:
    """A request of about that many bytes."""
    request = HeartbeatRequest(group_id="now", generation_id=7, member_id="m" * size)
    return client.frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, request)


class TestConnections:
    @pytest.mark.parametrize("size", [2000, 30_000])
    def test_a_byte_each_700_ms_is_too_slow(self, size: int) -> None:
        async def test() -> None:
            clock = HandClock()
            async with ScriptedListener(clock=clock) as listener:
                client = await listener.client()
                assert not await send_slowly(listener, clock, client, struct.pack(">i", size) + bytes(size), 1, 700)
                assert listener.dispatcher.connections.slow_count == 1
                client.close()

        asyncio.run(test())

    def test_a_length_that_is_never_whole_is_too_slow(self) -> None:
        async def test() -> None:
            clock = HandClock()
            async with ScriptedListener(clock=clock) as listener:
                client = await listener.client()
                await client.send_bytes(bytes(3))
                (connection,) = listener.connections
                await eventually_async(
                    lambda: not connection.slowness(clock.ms) and connection._inbound.under_way_bytes == 3
                )
                clock.ms += GRACE_MS
                assert listener.dispatcher.close_slow(clock.ms) == 1
                client.close()

        asyncio.run(test())

    def test_a_slow_line_is_waited_for(self) -> None:
        async def test() -> None:
            clock = HandClock()
            async with ScriptedListener(clock=clock) as listener:
                client = await listener.client()
                began_ms = clock.ms
                assert await send_slowly(listener, clock, client, beat(client, 30_000), 900, 1100)
                assert clock.ms - began_ms > GRACE_MS
                assert await client.numbers(1) == [7]
                client.close()

        asyncio.run(test())

    def test_a_halt_is_noticed(self) -> None:
        async def test() -> None:
            clock = HandClock()
            async with ScriptedListener(clock=clock) as listener:
                client = await listener.client()
                await client.send_bytes(struct.pack(">i", 100_000) + bytes(100))
                await eventually_async(lambda: listener.dispatcher.memory.held_bytes == 100_000)
                listener.dispatcher.close_slow(clock.ms)
                clock.ms += GRACE_MS - 1
                assert not listener.dispatcher.close_slow(clock.ms)
                clock.ms += 1
                assert listener.dispatcher.close_slow(clock.ms) == 1
                assert await client.is_closed()
                assert listener.dispatcher.memory.held_bytes == 0
                client.close()

        asyncio.run(test())

    def test_a_frame_that_waits_is_not_read_and_not_slow(self) -> None:
        async def test() -> None:
            clock = HandClock()
            config = ConnectionConfig(queued_max_request_bytes=8 * MIB)
            async with ScriptedListener(config, clock=clock) as listener:
                memory = listener.dispatcher.memory
                holder, waiter = await listener.client(), await listener.client()
                await eventually_async(lambda: len(listener.connections) == 2)
                await holder.send_bytes(struct.pack(">i", 4 * MIB) + bytes(1000))
                await eventually_async(lambda: memory.held_bytes == 4 * MIB)
                await waiter.beat(1)
                assert await waiter.numbers(1) == [1], "what is small passes"
                large = await listener.client()
                large.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
                sent = asyncio.create_task(large.send_bytes(struct.pack(">i", 3 * MIB) + bytes(3 * MIB)))
                await eventually_async(lambda: memory.waiting_count == 1)
                second: Connection = listener.connections[-1]
                for _ in range(100):
                    clock.ms += 1000
                    assert not second.slowness(clock.ms)
                assert not sent.done(), "the rest stays with the sender"
                holder.close()
                await sent
                assert await large.is_closed(), "it was read to its end, and is not a request"
                assert memory.held_bytes == 0
                for client in (waiter, large):
                    client.close()

        asyncio.run(test())

    def test_a_frame_that_comes_or_waits_is_not_idle(self) -> None:
        """The holder is closed as slow, with a log line; the frame that waited for its memory may still come."""

        async def test() -> None:
            clock = HandClock()
            config = ConnectionConfig(queued_max_request_bytes=8 * MIB, idle_ms=3000)
            async with ScriptedListener(config, clock=clock) as listener:
                dispatcher = listener.dispatcher
                idle, holder, waiter = [await listener.client() for _ in range(3)]
                await holder.send_bytes(struct.pack(">i", 4 * MIB) + bytes(1000))
                await eventually_async(lambda: dispatcher.memory.held_bytes == 4 * MIB)
                await waiter.send_bytes(struct.pack(">i", 3 * MIB) + bytes(1000))
                await eventually_async(lambda: dispatcher.memory.waiting_count == 1)
                dispatcher.close_slow(clock.ms)
                clock.ms += 3000
                assert dispatcher.close_idle(clock.ms) == 1
                assert await idle.is_closed()
                assert dispatcher.close_slow(clock.ms) == 1
                assert await holder.is_closed()
                await eventually_async(lambda: dispatcher.memory.held_bytes == 3 * MIB)
                assert dispatcher.close_idle(clock.ms) == 0
                for client in (idle, holder, waiter):
                    client.close()

        asyncio.run(test())

    def test_a_frame_behind_an_exclusive_request_reserves_nothing(self) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                memory = listener.dispatcher.memory
                client = await listener.client()
                await client.beat(1, "alone")
                await eventually_async(lambda: listener.begun == [1])
                frame = beat(client, 30_000)
                await client.send_bytes(frame[:10_000])
                await eventually_async(lambda: memory.held_bytes > 0)
                assert memory.held_bytes <= 10_000
                listener.finish(1)
                await client.send_bytes(frame[10_000:])
                assert await client.numbers(2) == [1, 7]
                assert memory.held_bytes == 0
                client.close()

        asyncio.run(test())

    def test_a_handler_that_goes_on_keeps_the_memory_of_its_request(self) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                memory = listener.dispatcher.memory
                client = await listener.client()
                request = HeartbeatRequest(group_id="alone", generation_id=3, member_id="m" * 30_000)
                frame = client.frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, request)
                await client.send_bytes(frame[:10_000])
                await eventually_async(lambda: memory.held_bytes == len(frame) - 4)
                await client.send_bytes(frame[10_000:])
                await eventually_async(lambda: listener.begun == [3])
                assert memory.held_bytes == len(frame) - 4
                listener.finish(3)
                assert await client.numbers(1) == [3]
                assert memory.held_bytes == 0
                client.close()

        asyncio.run(test())

    def test_reads_are_short_while_memory_is(self) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                (connection,) = listener.connections
                memory = listener.dispatcher.memory
                assert len(connection.get_buffer(-1)) > FREE_BYTES
                memory.read_ahead(memory.capacity_bytes)
                assert len(connection.get_buffer(-1)) == FREE_BYTES
                await client.beat_all(range(500))
                assert await client.numbers(500) == list(range(500))
                client.close()

        asyncio.run(test())
