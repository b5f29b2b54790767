"""One connection: versions, pipelined answers, and every way in which a peer can fail it."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from odradek.client.connection import (
    Connection,
    RequestTimeoutError,
    UnreachableError,
    UnsupportedRequestError,
    connect,
)
from odradek.common.real_io import RealNetwork
from odradek.protocol.api_key import ApiKey
from odradek.protocol.framing import encode_response
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.metadata_response import MetadataResponse

from .conftest import ScriptedPeer


async def connected(peer: ScriptedPeer, timeout_s: float = 60.0) -> Connection:
    return await connect(RealNetwork(), *peer.address, client_id="test", timeout_s=timeout_s)


async def test_a_request_goes_out_in_the_newest_version_that_both_know(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, lambda request, version: MetadataResponse(cluster_id=f"v{version}"), (1, 7))
    connection = await connected(peer)
    answer = await connection.request(MetadataRequest(), MetadataResponse, timeout_s=60)
    assert answer.cluster_id == "v7"
    assert connection.version_for(ApiKey.METADATA) == 7
    assert connection.version_for(ApiKey.METADATA, at_most=4) == 4
    connection.close()


async def test_an_api_or_version_that_the_peer_lacks_is_an_error(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, lambda request, version: None, (90, 99))
    connection = await connected(peer)
    with pytest.raises(UnsupportedRequestError, match="does not support FIND_COORDINATOR"):
        connection.send(FindCoordinatorRequest())
    with pytest.raises(UnsupportedRequestError, match="supports METADATA 90-99"):
        connection.send(MetadataRequest())
    connection.close()


async def test_failures_that_no_caller_awaits_are_not_reported(peer: ScriptedPeer) -> None:
    """A fetcher that is cancelled between a request and its response leaves such a failure."""
    peer.on(ApiKey.METADATA, lambda request, version: None, (1, 7))
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    connection = await connected(peer)
    connection.send(MetadataRequest())
    connection.close()
    connection.send(MetadataRequest())
    gc.collect()
    assert reported == []
    with pytest.raises(UnreachableError, match="was closed"):
        await connection.send(MetadataRequest())


async def test_a_peer_with_old_api_versions_gets_one_of_them(peer: ScriptedPeer) -> None:
    def old(request: Any, version: int) -> Any:
        if version == 0:
            return ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=1)])
        # Every broker answers an unknown version so: in version 0, with error 35.
        correlation_id = len(peer.asked) - 1
        return b"".join(encode_response(ApiKey.API_VERSIONS, 0, correlation_id, ApiVersionsResponse(error_code=35)))

    peer.answers[ApiKey.API_VERSIONS] = old
    connection = await connected(peer)
    assert [version for _, version, _ in peer.asked] == [4, 3, 0]
    assert connection.versions == {3: (0, 1)}
    connection.close()


def held_back(peer: ScriptedPeer, count: int, order: Callable[[list[int]], Iterable[int]]) -> Any:
    """Answers only when `count` requests wait, in the order given; an answer's content is its correlation id."""
    waiting: list[int] = []

    def answer(request: Any, version: int) -> Any:
        waiting.append(len(peer.asked) - 1)
        if len(waiting) < count:
            return None
        frames = [
            b"".join(encode_response(ApiKey.METADATA, version, number, MetadataResponse(cluster_id=str(number))))
            for number in order(waiting)
        ]
        return b"".join(frames)

    return answer


async def test_requests_are_pipelined_and_each_gets_its_response(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, held_back(peer, 3, list))
    connection = await connected(peer)
    answers = await asyncio.gather(*(connection.send(MetadataRequest()) for _ in range(3)))
    assert [answer.cluster_id for answer in answers if isinstance(answer, MetadataResponse)] == ["1", "2", "3"]
    connection.close()


async def test_the_end_of_a_request_is_called_at_once_and_once(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, lambda request, version: MetadataResponse() if len(peer.asked) == 2 else None)
    connection = await connected(peer)
    ended: list[asyncio.Future[Any]] = []
    answered = connection.send(MetadataRequest(), on_end=ended.append)
    await answered
    assert ended == [answered]
    lost = connection.send(MetadataRequest(), on_end=ended.append)
    connection.close()
    assert ended == [answered, lost], "in the same iteration of the loop"
    with pytest.raises(UnreachableError):
        await lost
    refused = connection.send(MetadataRequest(), on_end=ended.append)
    assert refused.done() and isinstance(refused.exception(), UnreachableError)
    assert len(ended) == 2, "it was not sent"


async def test_responses_out_of_order_close_the_connection(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, held_back(peer, 2, reversed))
    connection = await connected(peer)
    futures = [connection.send(MetadataRequest()) for _ in range(2)]
    for failure in await asyncio.gather(*futures, return_exceptions=True):
        assert isinstance(failure, UnreachableError)
        assert "a response to request 2 instead of 1" in str(failure)


async def test_a_connection_without_responses_is_closed(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, lambda request, version: None)
    connection = await connected(peer)
    also_waiting = connection.send(MetadataRequest())
    with pytest.raises(RequestTimeoutError, match=r"did not answer within 0\.05 s"):
        await connection.request(MetadataRequest(), MetadataResponse, timeout_s=0.05)
    assert not connection.is_open
    with pytest.raises(UnreachableError, match="stopped answering"):
        await also_waiting


async def test_a_disconnect_fails_pending_and_later_requests(peer: ScriptedPeer) -> None:
    peer.on(ApiKey.METADATA, lambda request, version: None)
    connection = await connected(peer)
    waiting = connection.send(MetadataRequest())
    await asyncio.sleep(0.05)
    await peer.hang_up()
    with pytest.raises(UnreachableError, match="closed the connection"):
        await waiting
    assert not connection.is_open
    with pytest.raises(UnreachableError):
        await connection.request(MetadataRequest(), MetadataResponse, timeout_s=60)


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (struct.pack(">i", -5) + b"x" * 20, "does not speak Kafka's protocol"),
        (struct.pack(">ii", 4, 77), "instead of 1"),
        (struct.pack(">iib", 5, 1, 0), "does not speak Kafka's protocol"),
    ],
)
async def test_garbage_closes_the_connection_with_a_reason(peer: ScriptedPeer, garbage: bytes, said: str) -> None:
    peer.on(ApiKey.METADATA, lambda request, version: garbage)
    connection = await connected(peer)
    with pytest.raises(UnreachableError, match=said):
        await connection.request(MetadataRequest(), MetadataResponse, timeout_s=60)
    assert not connection.is_open


async def test_a_port_without_a_listener(peer: ScriptedPeer) -> None:
    await peer.stop()
    with pytest.raises(UnreachableError, match="connection refused"):
        await connected(peer)


async def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(UnreachableError, match=r"cannot connect to no\.such\.host\.invalid:9092"):
        await connect(RealNetwork(), "no.such.host.invalid", 9092, client_id="test", timeout_s=60)


async def test_a_peer_that_accepts_connections_and_never_responds(peer: ScriptedPeer) -> None:
    peer.answers[ApiKey.API_VERSIONS] = lambda request, version: None
    with pytest.raises(RequestTimeoutError, match="did not answer"):
        await connected(peer, timeout_s=0.1)
