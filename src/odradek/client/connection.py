"""One connection to a broker: requests go out as they come, answers come in the same order.

Requests are pipelined: `send` returns a future at once. The peer's versions are asked for first (`negotiate`), and
every request is then sent in the newest version that both sides know (KIP-35, KIP-511).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from odradek.client.security import PLAINTEXT, OutgoingSecurity
from odradek.common.errors import ErrorCode, OdradekError, ProtocolError
from odradek.common.ports import Network
from odradek.common.real_threads import off_loop
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.codec import decode
from odradek.protocol.declare import Message
from odradek.protocol.framing import FrameReader, decode_response_header, encode_request
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse

if TYPE_CHECKING:
    from odradek.client.sasl import Credentials

M = TypeVar("M", bound=Message)
T = TypeVar("T")

# Larger than any answer a broker gives with its default limits; a peer that announces more is not one.
MAX_RESPONSE_BYTES = 512 * 1024 * 1024
_CORRELATION_IDS = 1 << 31


class UnreachableError(OdradekError, ConnectionError):
    """A broker cannot be reached, or hung up."""


class RefusedError(UnreachableError):
    """The broker's host answers, and refuses connections to its port: the process is gone or not there yet."""


# What a login waits for by its mechanism.
_SLOW = {"GSSAPI": "Kerberos did not answer", "OAUTHBEARER": "the issuer of tokens did not answer"}
# Of a session that the peer limits (KIP-368), so much is used: what is sent then still arrives in time.
SESSION_SHARE = 0.85


class RequestTimeoutError(OdradekError, TimeoutError):
    """A broker did not answer in time."""


class UnsupportedRequestError(OdradekError):
    """The broker does not know this API, or no version of it that we know."""


class UnsendableRequestError(OdradekError):
    """A value of the request does not fit into its field."""


@dataclass(slots=True)
class Traffic:
    """What went over some connections."""

    requests: int = 0
    responses: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class _Pending:
    """A request that is not answered yet."""

    __slots__ = ("future", "key", "version")

    def __init__(self, key: ApiKey, version: int, future: asyncio.Future[Message]) -> None:
        self.key = key
        self.version = version
        self.future = future


class Connection(asyncio.BufferedProtocol):
    """A connection of a client; made by `connect`."""

    def __init__(self, address: str, client_id: str, traffic: Traffic | None = None) -> None:
        """`address` is for messages only; in `traffic` is counted what is sent and received."""
        self.address = address
        self._traffic = traffic
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: ApiVersionsResponse = ApiVersionsResponse()
        self._client_id = client_id
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._pending: dict[int, _Pending] = {}
        self._next_id = 0
        self._transport: asyncio.Transport | None = None
        self._lost: Exception | None = None
        self._session_ends_s: float | None = None  # by the loop's clock
        self.on_lost: Callable[[], None] | None = None  # called once, where the peer or the network ends it

    @property
    def lost(self) -> Exception | None:
        """Why it ended; None while it lives."""
        return self._lost

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent.

        One whose session is nearly over closes itself while no request waits: its owner makes another, before the peer
        ends this one amid a request.
        """
        if not self._pending and self.session_is_ending:
            self.close()
        return self._transport is not None and self._lost is None

    @property
    def session_is_ending(self) -> bool:
        """Whether the peer soon ends the session: what goes on without a pause makes one, and another connection."""
        ends_s = self._session_ends_s
        return ends_s is not None and asyncio.get_running_loop().time() >= ends_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.buffer_updated(nbytes)
        if self._traffic is not None:
            self._traffic.received_bytes += nbytes
        try:
            while (frame := self._reader.next_frame()) is not None:
                self._answered(frame)
                if self._traffic is not None:
                    self._traffic.responses += 1
        except ProtocolError as error:
            self._fail(UnreachableError(f"{self.address} does not speak Kafka's protocol: {error}"))

    def eof_received(self) -> bool:
        self.connection_lost(None)  # the transport says so only on the loop's next turn
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None and self.on_lost is not None:
            self.on_lost()
        alert = getattr(exc, "reason", None)  # OpenSSL's: the peer refuses our certificate once the handshake is done
        if alert is None:
            self._fail(UnreachableError(f"{self.address} closed the connection"))
        else:
            self._fail(UnreachableError(f"{self.address} ended TLS: {str(alert).lower().replace('_', ' ')}"))

    def send(self, request: Message, version: int | None = None) -> asyncio.Future[Message]:
        """Send a request now; the future gets the response.

        Args:
            version: None takes the newest that both sides know.
        Raises:
            UnsupportedRequestError: there is no such version.
            UnsendableRequestError: a number or text is larger than the protocol has room for.
        The future fails with UnreachableError where the connection is lost first.
        """
        key = ApiKey(cast(int, request.KEY))
        chosen = self.version_for(key) if version is None else version
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._lost is not None:
            future.set_exception(self._lost or UnreachableError(f"{self.address} is not connected"))
            return future
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % _CORRELATION_IDS
        try:
            frame = encode_request(key, chosen, correlation_id, self._client_id, request)
        except ValueError as error:
            raise UnsendableRequestError(str(error)) from None
        self._pending[correlation_id] = _Pending(key, chosen, future)
        if self._traffic is not None:
            self._traffic.requests += 1
            self._traffic.sent_bytes += sum(map(len, frame))
        self._transport.writelines(frame)
        return future

    async def request(self, request: Message, response: type[M], *, timeout_s: float, version: int | None = None) -> M:
        """Send a request and wait for its response.

        Raises:
            RequestTimeoutError, UnreachableError, UnsupportedRequestError, UnsendableRequestError.
        """
        future = self.send(request, version)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            # It may be half-open, and every later request on it would wait as long: the next one takes a new one.
            self._fail(UnreachableError(f"{self.address} stopped answering"))
            raise RequestTimeoutError(f"{self.address} did not answer within {timeout_s:g} s") from None
        assert isinstance(answer, response)
        return answer

    def version_for(self, key: ApiKey, at_most: int | None = None) -> int:
        """The newest version of an API that both sides know, `at_most` (inclusive) where that is given.

        Raises:
            UnsupportedRequestError: there is none.
        """
        known = self.versions.get(key)
        spec = API[key]
        if known is None:
            raise UnsupportedRequestError(f"{self.address} does not support {key.name}")
        version = min(known[1], spec.max_version if at_most is None else at_most)
        if version < max(known[0], spec.min_version):
            raise UnsupportedRequestError(f"{self.address} knows {key.name} {known[0]}-{known[1]}, not what we know")
        return version

    async def negotiate(self, timeout_s: float) -> None:
        """Ask for the peer's versions. Raises as `request`."""
        asked = ApiVersionsRequest(client_software_name="odradek", client_software_version="0.1.0")
        for version in (4, 3, 0):
            response = await self.request(asked, ApiVersionsResponse, timeout_s=timeout_s, version=version)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        self.features = response
        self.versions = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}

    async def log_in(self, who: Credentials, timeout_s: float) -> None:
        """Say who we are; `negotiate` comes first, and nothing else before.

        Raises:
            RefusedLoginError: the listener has no SASL, or as `login`.
            RequestTimeoutError, UnreachableError; the latter for a token, too, that is missing, or a node's that is
                refused.
        """
        # A broker at its start needs none of these.
        from odradek.client.login import MissingTokenError, RefusedLoginError, go_on, login
        from odradek.client.sasl import OFF_THE_LOOP

        if ApiKey.SASL_HANDSHAKE not in self.versions:
            raise RefusedLoginError(f"{self.address} offers no SASL; does security.protocol say what it speaks?")
        asking = login(who, self.address)
        step = go_on(asking, None)
        try:
            while step is not None:
                answer = await self.request(*step, timeout_s=timeout_s)
                if who.mechanism in OFF_THE_LOOP:
                    step = await self._off_loop(partial(go_on, asking, answer), who.mechanism, timeout_s)
                else:
                    step = go_on(asking, answer)
        except RefusedLoginError as error:
            if not who.is_node and not isinstance(error, MissingTokenError):
                raise
            # The next login may have another token, and the peer may know the issuer's keys by then.
            raise UnreachableError(str(error)) from None
        session_ms = answer.session_lifetime_ms
        if session_ms > 0:
            self._session_ends_s = asyncio.get_running_loop().time() + SESSION_SHARE * session_ms / 1000

    async def _off_loop(self, work: Callable[[], T], mechanism: str, timeout_s: float) -> T:
        """Wait for a step of a login. Raises RequestTimeoutError, and what it raises."""
        try:
            async with asyncio.timeout(timeout_s):
                return await off_loop(work)
        except TimeoutError:
            self.close()
            what = _SLOW.get(mechanism, "the password was not hashed")
            raise RequestTimeoutError(f"{what} within {timeout_s:g} s") from None

    def close(self) -> None:
        """Close it; requests that wait fail."""
        self._fail(UnreachableError(f"the connection to {self.address} was closed"))

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[0:4], "big", signed=True)
        oldest = next(iter(self._pending), None)
        if correlation_id != oldest:
            raise ProtocolError(f"the answer to request {correlation_id} came where that to {oldest} was due")
        pending = self._pending[correlation_id]
        key, version = pending.key, pending.version
        # An ApiVersions of a version that the peer does not know is answered in version 0.
        if key is ApiKey.API_VERSIONS and version and int.from_bytes(frame[4:6], "big") == 35:
            version = 0
        _, offset = decode_response_header(key, version, frame)
        message: Any = decode(API[key].response, frame, version, offset)
        # Only now: a caller whose response cannot be read gets the same error as all others.
        del self._pending[correlation_id]
        if not pending.future.done():
            pending.future.set_result(message)

    def _fail(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            if not waiting.future.done():
                waiting.future.set_exception(error)
        if self._transport is None:
            return
        if self._transport.get_extra_info("ssl_object") is not None:
            self._transport.abort()  # close() would wait for the peer's farewell, for longer than our loop may run
        else:
            self._transport.close()


async def connect(
    network: Network,
    host: str,
    port: int,
    *,
    client_id: str,
    timeout_s: float,
    security: OutgoingSecurity = PLAINTEXT,
    traffic: Traffic | None = None,
) -> Connection:
    """Connect, learn the peer's versions, and log in where the listener asks for it; counted in `traffic`.

    Raises:
        RefusedLoginError: as `Connection.log_in`.
        UnreachableError: the connection or its TLS handshake is refused, or the host cannot be resolved.
        RequestTimeoutError: no connection or no answer in time.
    """
    address = f"{host}:{port}"
    connection = Connection(address, client_id, traffic)
    try:
        async with asyncio.timeout(timeout_s):
            await network.connect(lambda: connection, host, port, tls=security.tls())
    except TimeoutError:
        raise RequestTimeoutError(f"{address} did not take a connection within {timeout_s:g} s") from None
    except ConnectionRefusedError as error:
        raise RefusedError(f"cannot connect to {address}: {_reason(error)}") from None
    except OSError as error:
        raise UnreachableError(f"cannot connect to {address}: {_reason(error)}") from None
    try:
        await connection.negotiate(timeout_s)
        who = security.sasl()
        if who is not None:
            await connection.log_in(who, timeout_s)
    except BaseException:
        connection.close()
        raise
    return connection


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (error.strerror or str(error)).strip() or type(error).__name__
