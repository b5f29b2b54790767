"""One connection to a broker: requests are pipelined, and responses arrive in the same order.

`send` returns a future at once. `negotiate` requests the peer's API versions first; every request then has the newest
version that both sides support (KIP-35, KIP-511).
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

# Larger than any response of a broker with default limits; a peer that announces more is no broker.
MAX_RESPONSE_BYTES = 512 * 1024 * 1024
_CORRELATION_IDS = 1 << 31


class UnreachableError(OdradekError, ConnectionError):
    """A broker cannot be reached, or closed the connection."""


class RefusedError(UnreachableError):
    """The host refuses connections to the port: the broker is not running."""


# The error of a login that times out, by mechanism.
_SLOW = {"GSSAPI": "Kerberos did not answer", "OAUTHBEARER": "the issuer of tokens did not answer"}
# The share of a session's lifetime (KIP-368) after which no further request is sent.
SESSION_SHARE = 0.85


class RequestTimeoutError(OdradekError, TimeoutError):
    """A broker did not answer in time."""


class UnsupportedRequestError(OdradekError):
    """The broker does not support this API, or none of the versions that this client supports."""


class UnsendableRequestError(OdradekError):
    """A value of the request exceeds the range of its field."""


OnEnd = Callable[[asyncio.Future[Message]], None]


@dataclass(slots=True)
class Traffic:
    """Counters of some connections."""

    requests: int = 0
    responses: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class _Pending:
    """A request without a response yet."""

    __slots__ = ("future", "key", "on_end", "version")

    def __init__(self, key: ApiKey, version: int, future: asyncio.Future[Message], on_end: OnEnd | None) -> None:
        self.key = key
        self.version = version
        self.future = future
        self.on_end = on_end

    def complete(self, response: Message) -> None:
        if not self.future.done():
            self.future.set_result(response)
            self._call_back()

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            _set_error(self.future, error)
            self._call_back()

    def _call_back(self) -> None:
        if self.on_end is not None:
            self.on_end(self.future)


def _set_error(future: asyncio.Future[Message], error: Exception) -> None:
    """Fail a request. The sender may be cancelled before it awaits the future: asyncio would log the error then."""
    future.set_exception(error)
    future.exception()


class Connection(asyncio.BufferedProtocol):
    """A client connection; `connect` creates it."""

    def __init__(self, address: str, client_id: str, traffic: Traffic | None = None) -> None:
        """`address` is for messages only; `traffic` counts requests, responses and bytes."""
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
        self.on_lost: Callable[[], None] | None = None  # called once if the peer or the network ends the connection

    @property
    def lost(self) -> Exception | None:
        """The reason why the connection ended; None while it is open."""
        return self._lost

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent.

        A connection whose session is nearly over closes itself while no request is pending, so that its owner opens
        another before the peer ends this one during a request.
        """
        if not self._pending and self.session_is_ending:
            self.close()
        return self._transport is not None and self._lost is None

    @property
    def session_is_ending(self) -> bool:
        """Whether the session's end is near (KIP-368): continuous senders must then open another connection."""
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
        self.connection_lost(None)  # the transport reports it one iteration later
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost is None and self.on_lost is not None:
            self.on_lost()
        alert = getattr(exc, "reason", None)  # of OpenSSL: the peer may refuse a certificate after the handshake
        if alert is None:
            self._fail(UnreachableError(f"{self.address} closed the connection"))
        else:
            self._fail(UnreachableError(f"{self.address} ended TLS: {str(alert).lower().replace('_', ' ')}"))

    def send(
        self, request: Message, version: int | None = None, *, on_end: OnEnd | None = None
    ) -> asyncio.Future[Message]:
        """Send a request; the future gets the response, or UnreachableError if the connection is lost first.

        Args:
            version: None uses the newest that both sides support.
            on_end: called with the future of a request that was sent, once it is done: at once, where callbacks of the
                future run in the next iteration of the event loop.
        Raises:
            UnsupportedRequestError: there is no such version.
            UnsendableRequestError: a value exceeds the range of its field.
        """
        key = ApiKey(cast(int, request.KEY))
        chosen = self.version_for(key) if version is None else version
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._lost is not None:
            _set_error(future, self._lost or UnreachableError(f"{self.address} is not connected"))
            return future
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) % _CORRELATION_IDS
        try:
            frame = encode_request(key, chosen, correlation_id, self._client_id, request)
        except ValueError as error:
            raise UnsendableRequestError(str(error)) from None
        self._pending[correlation_id] = _Pending(key, chosen, future, on_end)
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
            # The connection may be half-open: close it, so that the next request does not time out as well.
            self._fail(UnreachableError(f"{self.address} stopped answering"))
            raise RequestTimeoutError(f"{self.address} did not answer within {timeout_s:g} s") from None
        assert isinstance(answer, response)
        return answer

    def version_for(self, key: ApiKey, at_most: int | None = None) -> int:
        """The newest version of an API that both sides support, limited to `at_most` (inclusive).

        Raises:
            UnsupportedRequestError: there is none.
        """
        known = self.versions.get(key)
        spec = API[key]
        if known is None:
            raise UnsupportedRequestError(f"{self.address} does not support {key.name}")
        version = min(known[1], spec.max_version if at_most is None else at_most)
        if version < max(known[0], spec.min_version):
            raise UnsupportedRequestError(
                f"{self.address} supports {key.name} {known[0]}-{known[1]}, not {spec.min_version}-{spec.max_version}"
            )
        return version

    async def negotiate(self, timeout_s: float) -> None:
        """Request the peer's API versions. Raises as `request`."""
        asked = ApiVersionsRequest(client_software_name="odradek", client_software_version="0.1.0")
        for version in (4, 3, 0):
            response = await self.request(asked, ApiVersionsResponse, timeout_s=timeout_s, version=version)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        self.features = response
        self.versions = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}

    async def log_in(self, who: Credentials, timeout_s: float) -> None:
        """Authenticate, after `negotiate` and before other requests.

        Raises:
            RefusedLoginError: the listener has no SASL, or as `login`.
            RequestTimeoutError, UnreachableError; the latter also for a missing token, and for the refused login of a
                node.
        """
        # Imported here: a broker does not need these at start.
        from odradek.client.login import MissingTokenError, RefusedLoginError, advance_login, login
        from odradek.client.sasl import OFF_THE_LOOP

        if ApiKey.SASL_HANDSHAKE not in self.versions:
            raise RefusedLoginError(f"{self.address} has no SASL: check security.protocol")
        asking = login(who, self.address)
        step = advance_login(asking, None)
        try:
            while step is not None:
                answer = await self.request(*step, timeout_s=timeout_s)
                if who.mechanism in OFF_THE_LOOP:
                    step = await self._off_loop(partial(advance_login, asking, answer), who.mechanism, timeout_s)
                else:
                    step = advance_login(asking, answer)
        except RefusedLoginError as error:
            if not who.is_node and not isinstance(error, MissingTokenError):
                raise
            # A later login may succeed, with another token, or when the peer has the issuer's keys.
            raise UnreachableError(str(error)) from None
        session_ms = answer.session_lifetime_ms
        if session_ms > 0:
            self._session_ends_s = asyncio.get_running_loop().time() + SESSION_SHARE * session_ms / 1000

    async def _off_loop(self, work: Callable[[], T], mechanism: str, timeout_s: float) -> T:
        """Run a step of a login in a thread. Raises RequestTimeoutError, and the step's errors."""
        try:
            async with asyncio.timeout(timeout_s):
                return await off_loop(work)
        except TimeoutError:
            self.close()
            what = _SLOW.get(mechanism, "the password was not hashed")
            raise RequestTimeoutError(f"{what} within {timeout_s:g} s") from None

    def close(self) -> None:
        """Close the connection; pending requests fail."""
        self._fail(UnreachableError(f"the connection to {self.address} was closed"))

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[0:4], "big", signed=True)
        oldest = next(iter(self._pending), None)
        if correlation_id != oldest:
            raise ProtocolError(f"a response to request {correlation_id} instead of {oldest}")
        pending = self._pending[correlation_id]
        key, version = pending.key, pending.version
        # A peer that does not support the version of ApiVersions responds in version 0.
        if key is ApiKey.API_VERSIONS and version and int.from_bytes(frame[4:6], "big") == 35:
            version = 0
        _, offset = decode_response_header(key, version, frame)
        message: Any = decode(API[key].response, frame, version, offset)
        # After decoding, so that a malformed response fails this request like all others.
        del self._pending[correlation_id]
        pending.complete(message)

    def _fail(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            waiting.fail(error)
        if self._transport is None:
            return
        if self._transport.get_extra_info("ssl_object") is not None:
            self._transport.abort()  # close() would wait for the peer's close_notify
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
    """Connect, request the peer's API versions, and log in if `security` has credentials.

    Args:
        traffic: counts requests, responses and bytes.
    Raises:
        RefusedLoginError: as `Connection.log_in`.
        UnreachableError: the connection or its TLS handshake is refused, or the host cannot be resolved.
        RequestTimeoutError: no connection or no response in time.
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
