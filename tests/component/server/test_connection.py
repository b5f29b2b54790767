"""One connection: answers in order, one exclusive handler at a time, bounded memory, turns, and every way to end.

Each test runs on the loop of the standard library and on uvloop, which a node prefers.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from odradek.common.errors import ErrorCode
from odradek.metadata.model import quota_entity
from odradek.protocol import codec
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.describe_configs_request import DescribeConfigsRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.server.network.connection import (
    MAX_OVERLAPPING,
    MAX_UNSENT_BYTES,
    METERED_REQUESTS_PER_TURN,
    Connection,
)
from odradek.server.network.connection_quotas import ConnectionQuotas
from odradek.server.network.dispatch import Dispatcher
from odradek.server.network.listeners import ConnectionConfig, ListenerSpec
from tests.support.nodes.listener import HEARTBEAT_VERSION, SYNC_VERSION, Client, ScriptedListener
from tests.support.waiting import PATIENCE_S, eventually_async

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def with_loop(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(test, 2 * PATIENCE_S))

    return with_loop


async def at_rest(count: Callable[[], int]) -> None:
    """Wait until something is counted that grows no more, over as many turns of the loop as it has had."""
    last, still = 0, 0
    while still < 50:
        await asyncio.sleep(0.002)
        now = count()
        last, still = now, still + 1 if now and now == last else 0


def error_of(frame: bytes) -> ErrorCode:
    return ErrorCode(codec.decode(HeartbeatResponse, frame, HEARTBEAT_VERSION, 5).error_code)


class TestOrder:
    def test_answers_come_in_the_order_of_requests_whatever_ends_first(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                for number, what in enumerate(["now", "wait", "now", "wait", "wait", "now"]):
                    await client.beat(number, what)
                assert await client.numbers(1) == [0]
                await eventually_async(lambda: listener.begun == [0, 1, 2, 3, 4, 5])
                listener.finish(4)
                listener.finish(3)
                assert await client.is_silent()
                listener.finish(1)
                assert await client.numbers(5) == [1, 2, 3, 4, 5]
                client.close()

        run(test())

    def test_a_request_without_answer_leaves_no_gap(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                for number, what in enumerate(["silent", "now", "wait", "silent", "now"]):
                    await client.beat(number, what)
                assert await client.numbers(1) == [1]
                await eventually_async(lambda: len(listener.begun) == 5)
                assert await client.is_silent()
                listener.finish(2)
                assert await client.numbers(2) == [2, 4]
                assert not listener.connections[0].busy
                client.close()

        run(test())

    def test_a_coroutine_has_the_connection_to_itself(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                for number, what in enumerate(["wait", "alone", "now", "alone", "now"]):
                    await client.beat(number, what)
                await eventually_async(lambda: listener.begun == [0, 1])
                await asyncio.sleep(0.02)
                assert listener.begun == [0, 1], "what follows waits to be begun"
                listener.finish(1)
                await eventually_async(lambda: listener.begun == [0, 1, 2, 3])
                assert await client.is_silent(), "the first still holds the answers"
                listener.finish(0)
                assert await client.numbers(3) == [0, 1, 2]
                listener.finish(3)
                assert await client.numbers(2) == [3, 4]
                client.close()

        run(test())

    def test_other_connections_do_not_wait_for_it(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                one, two = await listener.client(), await listener.client()
                await one.beat(1, "alone")
                await two.beat(2)
                assert await two.numbers(1) == [2]
                listener.finish(1)
                assert await one.numbers(1) == [1]
                one.close()
                two.close()

        run(test())

    def test_requests_before_serving_starts_are_served_then(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener(is_open=False) as listener:
                client = await listener.client()
                await client.beat_all(range(3))
                assert await client.is_silent()
                assert not listener.begun
                listener.dispatcher.start_serving("broker")
                assert await client.numbers(3) == [0, 1, 2]
                client.close()

        run(test())


class TestBounds:
    def test_no_more_waits_than_allowed_the_rest_stays_in_the_socket(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                total = MAX_OVERLAPPING + 50
                await client.beat_all(range(total), "wait")
                await eventually_async(lambda: len(listener.begun) == MAX_OVERLAPPING)
                await asyncio.sleep(0.02)
                assert len(listener.begun) == MAX_OVERLAPPING
                listener.finish(0)
                await eventually_async(lambda: len(listener.begun) == MAX_OVERLAPPING + 1)
                for number in range(1, MAX_OVERLAPPING + 1):
                    listener.finish(number)
                await eventually_async(lambda: len(listener.begun) == total)
                for number in range(MAX_OVERLAPPING + 1, total):
                    listener.finish(number)
                assert await client.numbers(total) == list(range(total))
                client.close()

        run(test())

    def test_a_peer_that_does_not_read_costs_a_bounded_amount(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener(ConnectionConfig(send_buffer_bytes=64 * 1024)) as listener:
                client = Client(listener.spec.port, receive_buffer_bytes=64 * 1024)
                size, total = 100_000, 200
                request = SyncGroupRequest(group_id="g", generation_id=size)
                frames = client.frame(ApiKey.SYNC_GROUP, SYNC_VERSION, request) * total
                sending = asyncio.get_running_loop().create_task(client.send_bytes(frames))
                await at_rest(lambda: len(listener.begun))
                (connection,) = listener.connections
                outbound = connection._outbound
                assert outbound is not None
                assert outbound.pending_bytes <= MAX_UNSENT_BYTES + size + 100
                begun = len(listener.begun)
                assert begun < 30, "socket buffers, the queue, and no more"
                await asyncio.sleep(0.05)
                assert len(listener.begun) == begun
                for _ in range(total):
                    assert len(await client.answer()) >= size
                await sending
                assert outbound.pending_bytes == 0
                client.close()

        run(test())

    def test_a_flood_leaves_others_their_turn(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                flood, other = await listener.client(), await listener.client()
                total = 3200
                frames = flood.frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, _beat(1)) * total
                sending = asyncio.ensure_future(flood.send_bytes(frames))
                await eventually_async(lambda: bool(listener.begun))
                await other.beat(-1)
                await eventually_async(lambda: -1 in listener.begun)
                place = listener.begun.index(-1)
                assert place < total / 2, "not behind the whole flood"
                assert await other.numbers(1) == [-1]
                assert await flood.numbers(total) == [1] * total
                await sending
                flood.close()
                other.close()

        run(test())

    @pytest.mark.parametrize("is_removed", [False, True])
    def test_a_client_has_shorter_turns_while_its_time_is_metered(self, run: Run, is_removed: bool) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                ample = {quota_entity([("client-id", None)]): {"request_percentage": 100_000.0}}
                listener.dispatcher.quotas.change_quotas(ample)
                metered, other = await listener.client(), await listener.client()
                await metered.beat(0)
                await metered.answer()
                if is_removed:
                    listener.dispatcher.quotas.change_quotas({})
                total = 8 * METERED_REQUESTS_PER_TURN
                # A response that names a throttle time would mute the channel.
                frames = [metered.frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, _beat(0)) for _ in range(total)]
                # Both have sent before the loop looks at its sockets again.
                metered.socket.sendall(b"".join(frames))
                other.socket.sendall(other.frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, _beat(-1)))
                await other.answer()
                for _ in range(total):
                    await metered.answer()
                before_other = listener.begun[1:].index(-1)
                assert (before_other <= METERED_REQUESTS_PER_TURN) == (not is_removed)
                metered.close()
                other.close()

        run(test())

    def test_a_request_that_takes_long_ends_the_turn(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                busy, other = await listener.client(), await listener.client()
                await busy.beat_all(range(1, 31), "slow")
                await other.beat(99)
                assert await busy.numbers(30) == list(range(1, 31))
                assert await other.numbers(1) == [99]
                assert listener.begun.index(99) < 15, "who asks little does not wait for all that another asks"
                busy.close()
                other.close()

        run(test())


def _beat(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="now", generation_id=number)


class TestFailures:
    def test_a_refusal_and_a_bug_are_answered_and_the_connection_goes_on(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                await client.beat(1, "refused")
                await client.beat(2, "broken")
                await client.beat(3)
                assert error_of(await client.answer()) is ErrorCode.INVALID_REQUEST
                assert error_of(await client.answer()) is ErrorCode.UNKNOWN_SERVER_ERROR
                assert await client.numbers(1) == [3]
                route = listener.dispatcher.routes["broker"][ApiKey.HEARTBEAT]
                assert (route.request_count, route.error_count) == (3, 2)
                client.close()

        run(test())

    def test_a_wait_that_fails_is_answered_in_its_place(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                for number, what in enumerate(["wait", "alone", "now"]):
                    await client.beat(number, what)
                await eventually_async(lambda: 1 in listener.waits)
                listener.waits[1].fail(RuntimeError("later"))
                listener.waits[0].fail(RuntimeError("later"))
                codes = [error_of(await client.answer()) for _ in range(3)]
                assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
                client.close()

        run(test())

    def test_where_an_answer_has_no_place_for_an_error_the_connection_ends(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                await client.send(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest())
                assert await client.is_closed()
                client.close()

        run(test())

    def test_a_handler_that_finds_a_lie_ends_the_connection(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                await client.beat(1, "lied")
                assert await client.is_closed()
                await eventually_async(lambda: not listener.connections)
                client.close()

        run(test())

    @pytest.mark.parametrize(
        "frame",
        [
            b"",
            b"\x00",
            struct.pack(">hhi", ApiKey.HEARTBEAT, 4, 1),
            struct.pack(">hhih", 77, 0, 1, -1),
            struct.pack(">hhih", -1, 0, 1, -1),
            struct.pack(">hhih", ApiKey.HEARTBEAT, 5, 1, -1),
            struct.pack(">hhih", ApiKey.HEARTBEAT, -1, 1, -1),
            struct.pack(">hhih", ApiKey.HEARTBEAT, 0, 1, 32767),
            struct.pack(">hhih", ApiKey.HEARTBEAT, 0, 1, -2),
            struct.pack(">hhih", ApiKey.HEARTBEAT, 4, 1, -1) + b"\xff",
            struct.pack(">hhih", ApiKey.HEARTBEAT, 4, 1, -1) + b"\x00\x7f",
        ],
    )
    def test_bytes_that_are_no_request_end_the_connection(self, run: Run, frame: bytes) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client, other = await listener.client(), await listener.client()
                await client.send_bytes(struct.pack(">i", len(frame)) + frame)
                assert await client.is_closed()
                await other.beat(1)
                assert await other.numbers(1) == [1]
                client.close()
                other.close()

        run(test())

    def test_good_requests_in_front_of_a_bad_one_are_answered(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                good = client.frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, _beat(1))
                await client.send_bytes(good)
                assert await client.numbers(1) == [1]
                await client.send_bytes(b"\xff\xff\xff\xff" + good)
                assert await client.is_closed()
                client.close()

        run(test())

    @pytest.mark.parametrize("version", [6, 32767])
    def test_only_api_versions_answers_an_unknown_version(self, run: Run, version: int) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                frame = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 9, -1) + b"\x00garbage"
                await client.send_bytes(struct.pack(">i", len(frame)) + frame)
                answer = codec.decode(ApiVersionsResponse, await client.answer(), 0, 4)
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
                assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(ApiKey.API_VERSIONS, 5)]
                client.close()

        run(test())


class _Busy(Connection):
    """A connection behind which the loop has so much to do that the wait for a place is over when it comes to it."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self.is_admitted:
            time.sleep(0.3)


class TestEnds:
    def test_a_client_that_leaves_takes_its_waits_along(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                await client.beat(1, "wait")
                await client.beat(2, "alone")
                await eventually_async(lambda: 2 in listener.waits)
                client.close()
                await eventually_async(lambda: not listener.connections)
                assert listener.waits[1].is_ended and listener.waits[1].response is None
                listener.finish(2)
                await eventually_async(lambda: listener.ended == [2])

        run(test())

    def test_a_negative_limit_closes_no_idle_connection(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener(ConnectionConfig(idle_ms=-1)) as listener:
                idle = await listener.client()
                await idle.beat(1)
                assert await idle.numbers(1) == [1]
                now = listener.dispatcher.services.clock.monotonic_ms()
                assert listener.dispatcher.close_idle(now + 10**12) == 0
                await idle.beat(2)
                assert await idle.numbers(1) == [2]
                idle.close()

        run(test())

    def test_closing_ends_handlers_that_still_wait(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener() as listener:
                client = await listener.client()
                await client.beat(1, "alone")
                await eventually_async(lambda: 1 in listener.waits)
                await listener.dispatcher.close()
                assert listener.ended == [1]
                assert await client.is_closed()
                client.close()

        run(test())

    def test_a_connection_that_comes_when_the_others_are_closed_is_ended(self, run: Run) -> None:
        """The system had it when the listener closed."""

        async def test() -> None:
            async with ScriptedListener() as listener:
                await listener.dispatcher.close()
                late = Client(listener.spec.port)
                assert await late.is_closed()
                late.close()

        run(test())

    def test_idle_connections_are_closed_and_busy_ones_are_not(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener(ConnectionConfig(idle_ms=1000)) as listener:
                idle, busy = await listener.client(), await listener.client()
                await idle.beat(1)
                assert await idle.numbers(1) == [1]
                await busy.beat(2, "wait")
                await eventually_async(lambda: 2 in listener.waits)
                now = listener.dispatcher.services.clock.monotonic_ms()
                assert listener.dispatcher.close_idle(now) == 0
                assert listener.dispatcher.close_idle(now + 1001) == 1
                assert await idle.is_closed()
                listener.finish(2)
                assert await busy.numbers(1) == [2]
                idle.close()
                busy.close()

        run(test())

    def test_connections_over_the_limit_wait_and_some_are_refused(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener(ConnectionConfig(max_connections=2, backlog=1)) as listener:
                clients = [await listener.client() for _ in range(2)]
                await eventually_async(lambda: len(listener.connections) == 2)
                connection_quotas = listener.dispatcher.connections.connection_quotas
                waits = await listener.client()
                await waits.beat(1)
                await eventually_async(lambda: connection_quotas.waiting_count == 1)
                refused = await listener.client()
                assert await refused.is_closed()
                assert listener.dispatcher.connections.refused_count == 1
                assert listener.begun == []
                clients[0].close()
                assert await waits.numbers(1) == [1]
                gone = await listener.client()
                await eventually_async(lambda: connection_quotas.waiting_count == 1)
                gone.close()
                waits.close()
                await eventually_async(lambda: connection_quotas.waiting_count == 0 and len(listener.connections) == 1)
                admitted = await listener.client()
                await admitted.beat(2)
                assert await admitted.numbers(1) == [2]
                for client in (clients[1], refused, admitted):
                    client.close()
                await eventually_async(lambda: not listener.connections)

        run(test())

    @pytest.mark.parametrize("ends", ["FIN", "RST"])
    def test_a_probe_that_leaves_while_it_waits_keeps_no_place(self, run: Run, ends: str) -> None:
        """A health probe connects and closes at once."""

        async def test() -> None:
            async with ScriptedListener(ConnectionConfig(max_connections=1)) as listener:
                first = await listener.client()
                await eventually_async(lambda: len(listener.connections) == 1)
                connection_quotas = listener.dispatcher.connections.connection_quotas
                for _ in range(3):
                    probe = Client(listener.spec.port)
                    if ends == "RST":
                        probe.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    probe.close()
                await eventually_async(lambda: connection_quotas.waited_count == 3)
                later = await listener.client()
                await later.beat(1)
                first.close()
                assert await later.numbers(1) == [1]
                assert connection_quotas.waiting_count == 0
                later.close()

        run(test())

    def test_a_connection_that_has_ended_waits_no_longer(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener(ConnectionConfig(max_connections=1)) as listener:
                made: list[Connection] = []

                def make(dispatcher: Dispatcher, spec: ListenerSpec) -> Connection:
                    made.append(Connection(dispatcher, spec))
                    return made[-1]

                listener.made = make
                clients = [await listener.client() for _ in range(3)]
                connection_quotas = listener.dispatcher.connections.connection_quotas
                await eventually_async(lambda: connection_quotas.waiting_count == 2)
                made[1].close()
                await eventually_async(lambda: connection_quotas.waiting_count == 1)
                clients[0].close()
                await clients[2].beat(1)
                assert await clients[2].numbers(1) == [1]
                for client in clients[1:]:
                    client.close()

        run(test())

    def test_a_place_that_comes_in_the_next_turn_has_the_client_read(self, run: Run) -> None:
        async def test() -> None:
            async with ScriptedListener(ConnectionConfig(max_connection_creation_rate=4)) as listener:
                listener.made = _Busy
                connection_quotas = listener.dispatcher.connections.connection_quotas = ConnectionQuotas(burst_s=0.25)
                listener.dispatcher.change_limits(listener.dispatcher.config)
                clients = []
                while not connection_quotas.waited_count:
                    clients.append(await listener.client())
                    await clients[-1].beat(len(clients))
                    assert await clients[-1].numbers(1) == [len(clients)]
                for client in clients:
                    client.close()

        run(test())

    @pytest.mark.parametrize(
        ("config", "admitted"),
        [
            (ConnectionConfig(max_connections_per_ip=1), 1),
            (ConnectionConfig(max_connections_per_ip=1, max_connections_per_ip_overrides="127.0.0.1:3"), 3),
            (ConnectionConfig(max_connections_per_ip_overrides="10.0.0.1:0,127.0.0.1:2"), 2),
            (ConnectionConfig(max_connections_per_ip_overrides="127.0.0.1:0"), 0),
            (ConnectionConfig(max_connections_per_ip_overrides="[::ffff:127.0.0.1]:2"), 2),
        ],
    )
    def test_an_address_has_its_own_limit(self, run: Run, config: ConnectionConfig, admitted: int) -> None:
        async def test() -> None:
            async with ScriptedListener(config) as listener:
                clients = [Client(listener.spec.port) for _ in range(5)]
                counts = listener.dispatcher.connections
                await eventually_async(lambda: counts.accepted_count + counts.refused_count == 5)
                assert (counts.accepted_count, len(listener.connections)) == (admitted, admitted)
                for client in clients:
                    client.close()
                await eventually_async(lambda: not listener.connections)

        run(test())
