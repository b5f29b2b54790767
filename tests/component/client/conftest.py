"""A peer on a real socket with the responses that a test sets: how the client takes good and bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from odradek.common.real_io import RealListener
from odradek.protocol.api_key import ApiKey
from odradek.protocol.apis import API
from odradek.protocol.codec import decode
from odradek.protocol.framing import decode_request_header, encode_response
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from tests.support.waiting import some_turns

Answer = Callable[[Any, int], Any]


class ScriptedPeer:
    """Answers each API by the function given for it.

    A function gets request and version and returns a response, bytes to be sent as they are, or None for silence.
    """

    def __init__(self) -> None:
        self.answers: dict[ApiKey, Answer] = {ApiKey.API_VERSIONS: self.api_versions}
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        self.asked: list[tuple[ApiKey, int, Any]] = []
        self.connections = self.open_connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def on(self, key: ApiKey, answer: Answer, versions: tuple[int, int] | None = None) -> None:
        """Answer an API, in all versions that we know where none are given."""
        self.answers[key] = answer
        spec = API[key]
        self.versions[key] = versions or (spec.min_version, spec.max_version)

    def api_versions(self, request: Any, version: int) -> Any:
        known = {ApiKey.API_VERSIONS: (0, 4)} | self.versions
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in known.items()]
        return ApiVersionsResponse(api_keys=keys)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def hang_up(self) -> None:
        """Close all connections, and take new ones."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def stop(self) -> None:
        if self._server is not None:
            RealListener(self._server).close()
            await some_turns()
        await self.hang_up()
        await some_turns()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        self._writers.append(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                self._answer(await reader.readexactly(length), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.open_connections -= 1

    def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header, offset = decode_request_header(frame)
        key, version = ApiKey(header.request_api_key), header.request_api_version
        request = decode(API[key].request, frame, version, offset)
        self.asked.append((key, version, request))
        answer = self.answers[key](request, version)
        if isinstance(answer, bytes):
            writer.write(answer)
        elif answer is not None:
            writer.writelines(encode_response(key, version, header.correlation_id, answer))


@pytest.fixture
async def peer() -> AsyncIterator[ScriptedPeer]:
    """A peer that listens."""
    made = ScriptedPeer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def second_peer() -> AsyncIterator[ScriptedPeer]:
    """Another one."""
    made = ScriptedPeer()
    await made.start()
    yield made
    await made.stop()
