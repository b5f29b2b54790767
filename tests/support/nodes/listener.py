"""Real connections on a real listener whose handlers the test writes, to test the code between socket and handler.

Heartbeat requests control the handler: `generation_id` is a number that comes back as throttle_time_ms, `group_id`
selects the behaviour. SyncGroup answers as many bytes as its `generation_id`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from odradek.common.errors import ApiError, ErrorCode, ProtocolError
from odradek.common.metrics import Metrics
from odradek.common.ports import Clock, Listener, MachineLimits
from odradek.common.real_io import RealClock, RealNetwork
from odradek.protocol import codec
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.describe_configs_response import DescribeConfigsResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.server.context import BrokerServices, RequestContext
from odradek.server.network.connection import TURN_MS, Connection
from odradek.server.network.dispatch import Dispatcher, Handler, make_dispatcher, make_routes
from odradek.server.network.listeners import ConnectionConfig, ListenerSpec
from odradek.server.pending_response import PendingResponse
from odradek.server.telemetry.store import ClientTelemetry, TelemetryConfig
from tests.support.waiting import PATIENCE_S, eventually_async, some_turns

HEARTBEAT_VERSION, SYNC_VERSION, FETCH_VERSION = 4, 5, 12


class ScriptedListener:
    """One listener with its dispatcher."""

    def __init__(
        self, config: ConnectionConfig | None = None, *, is_open: bool = True, clock: Clock | None = None
    ) -> None:
        self.begun: list[int] = []
        self.waits: dict[int, PendingResponse] = {}
        self.ended: list[int] = []
        self.made: Callable[[Dispatcher, ListenerSpec], Connection] = Connection
        self.fetched: Callable[[], FetchResponse] = FetchResponse
        handlers = (
            Handler(ApiKey.HEARTBEAT, self._heartbeat, 0, 4),
            Handler(ApiKey.SYNC_GROUP, lambda _, request: self._sync(request), 0, 5),
            Handler(ApiKey.FETCH, lambda context, request: self.fetched(), 4, 18),
            Handler(ApiKey.DESCRIBE_CONFIGS, self._raise, 1, 4),
            Handler(ApiKey.API_VERSIONS, lambda context, request: self._versions(), 0, 5),
        )
        routes = {"broker": make_routes(handlers, "broker")}
        limits = config or ConnectionConfig()
        # Connections need the clock; the rest of a node is what handlers would use.
        nothing: Any = None
        services = BrokerServices(
            node_id=1, cluster_id="c", settings=nothing, setting_rules=nothing, clock=clock or RealClock(),
            metrics=Metrics(), publisher=nothing,
            telemetry=ClientTelemetry(TelemetryConfig(), uuid4, is_on=True),
            log_manager=nothing, cleaner=nothing, scrub_counts=nothing,
            replicas=nothing,
            fetch_sessions=nothing, producer_ids=nothing, controller=nothing, quorum=nothing,
            coordinator=nothing, transactions=nothing,
            verifier=nothing, markers=nothing, liveness=None, suspected_brokers=nothing,
            topic_creator=nothing, routes=routes,
        )  # fmt: skip
        self.dispatcher = make_dispatcher(services, limits, routes, MachineLimits())
        self.spec = ListenerSpec("PLAINTEXT", "127.0.0.1", 0)
        if is_open:
            self.dispatcher.start_serving(self.spec.scope)
        self._listener: Listener | None = None

    async def __aenter__(self) -> ScriptedListener:
        self._listener = await RealNetwork().listen(lambda: self.made(self.dispatcher, self.spec), "127.0.0.1", 0)
        self.spec.port = self._listener.port
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        await self.dispatcher.close()
        await some_turns()

    @property
    def connections(self) -> list[Connection]:
        return list(self.dispatcher.connections)

    async def client(self) -> Client:
        found = Client(self.spec.port)
        await asyncio.sleep(0)
        await eventually_async(lambda: bool(self.connections))
        return found

    def _versions(self) -> ApiVersionsResponse:
        """The APIs that are served here, so that clients that ask first can go on."""
        routes = self.dispatcher.routes["broker"]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=route.versions.first, max_version=route.versions.last)
                for key, route in routes.items()
            ]
        )

    def _heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        number, what = request.generation_id, request.group_id
        self.begun.append(number)
        answer = HeartbeatResponse(throttle_time_ms=number)
        if what == "wait":
            self.waits[number] = PendingResponse()
            return self.waits[number]
        if what == "alone":
            self.waits[number] = PendingResponse()
            return self._alone(number)
        if what == "slow":
            time.sleep(2 * TURN_MS / 1000)
            return answer
        if what == "silent":
            return None
        if what != "now":
            return self._raise(context, what)
        return answer

    async def _alone(self, number: int) -> HeartbeatResponse:
        try:
            await self.waits[number]
        finally:
            self.ended.append(number)
        return HeartbeatResponse(throttle_time_ms=number)

    def finish(self, number: int) -> None:
        self.waits[number].complete(HeartbeatResponse(throttle_time_ms=number))

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        self.begun.append(request.generation_id)
        return SyncGroupResponse(assignment=bytes(request.generation_id))

    @staticmethod
    def _raise(context: RequestContext, what: object) -> DescribeConfigsResponse:
        if what == "refused":
            raise ApiError(ErrorCode.INVALID_REQUEST, "no")
        if what == "lied":
            raise ProtocolError("the bytes were not what they said")
        raise RuntimeError("a bug of ours")


class Client:
    """The other end: a plain socket that reads only when a test asks it to."""

    def __init__(self, port: int, *, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.sent = 0
        self._received = bytearray()

    async def beat(self, number: int, what: str = "now") -> None:
        await self.send(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, HeartbeatRequest(group_id=what, generation_id=number))

    async def beat_all(self, numbers: range, what: str = "now") -> None:
        """Send heartbeats with all these numbers at once."""
        frames = [
            self.frame(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, HeartbeatRequest(group_id=what, generation_id=number))
            for number in numbers
        ]
        await asyncio.get_running_loop().sock_sendall(self.socket, b"".join(frames))

    async def send(self, key: ApiKey, version: int, request: Any) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self.frame(key, version, request))

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def frame(self, key: ApiKey, version: int, request: Any) -> bytes:
        self.sent += 1
        header = struct.pack(">hhih", key, version, self.sent, -1)
        header += b"\x00" if API[key].request_header_version(version) >= 2 else b""
        body = codec.encode(request, version)
        return struct.pack(">i", len(header) + len(body)) + header + body

    async def numbers(self, count: int) -> list[int]:
        """The numbers of the next answers to Heartbeat."""
        found = []
        for _ in range(count):
            frame = await self.answer()
            found.append(codec.decode(HeartbeatResponse, frame, HEARTBEAT_VERSION, 5).throttle_time_ms)
        return found

    async def answer(self, timeout_s: float = PATIENCE_S) -> bytes:
        """The next frame; EOFError where the connection ended."""
        await self._need(4, timeout_s)
        (length,) = struct.unpack_from(">i", self._received)
        await self._need(4 + length, timeout_s)
        frame = bytes(self._received[4 : 4 + length])
        del self._received[: 4 + length]
        return frame

    async def is_silent(self, for_s: float = 0.05) -> bool:
        try:
            await self._need(1, for_s)
        except TimeoutError:
            return True
        return False

    async def is_closed(self) -> bool:
        try:
            await self._need(1, PATIENCE_S)
        except (EOFError, ConnectionError):
            return True
        return False

    async def _need(self, count: int, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            while len(self._received) < count:
                data = await loop.sock_recv(self.socket, 1 << 20)
                if not data:
                    raise EOFError
                self._received += data

    def close(self) -> None:
        self.socket.close()
