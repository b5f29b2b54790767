"""One blocking connection to one broker: TCP, TLS where asked for, SASL, and requests in order.

Versions are negotiated with ApiVersions at connect: the highest that both sides have, below a limit for each API that
this package has been written for. The codec and the messages are the broker's own (`odradek.protocol`).
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odradek.client.login import RefusedLoginError, login
from odradek.client.sasl import Credentials, SaslSettingError
from odradek.common.errors import ErrorCode, ProtocolError
from odradek.protocol import codec
from odradek.protocol.apis import API, ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.request_header import RequestHeader
from odradek.protocol.messages.response_header import ResponseHeader
from odradek.security.client.settings import credentials
from pyspark_odradek.errors import ClusterError, OptionError

if TYPE_CHECKING:
    import ssl

R = TypeVar("R", bound=Message)

MAX_RESPONSE_BYTES = 1 << 30
LARGE_BYTES = 64 << 10
CONNECT_TIMEOUT_S = 10.0
WHICH_LISTENER = "Does kafka.security.protocol say what this listener speaks?"
FETCH_BY_NAME = 12  # from 13 on a topic is named by its id (KIP-516)
# The newest version of each API that this package was written for.
NEWEST = {
    ApiKey.FETCH: 13,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 10,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DESCRIBE_CONFIGS: 4,
    # Of the first generation of transactions (KIP-98), which every cluster with transactions speaks: from Produce 12,
    # TxnOffsetCommit 5 and EndTxn 5 on it is the second (KIP-890).
    ApiKey.PRODUCE: 11,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.API_VERSIONS: 3,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
}


def _no_login() -> Credentials | None:
    return None


@dataclass(frozen=True)
class Security:
    """The TLS of connections to a listener, and the credentials, which a new token may change."""

    tls: ssl.SSLContext | None = None
    sasl: Callable[[], Credentials | None] = field(default=_no_login, repr=False)


def security_from(settings: Mapping[str, str]) -> Security:
    """Read `security.protocol`, `ssl.*` and `sasl.*` by the names of Kafka's Java client, or of librdkafka.

    Key and trust stores are PEM, as a file or as text, PKCS12 or JKS.

    Raises:
        OptionError: a protocol or mechanism that is not supported, a store that cannot be read, or no token.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise OptionError(f"kafka.security.protocol={protocol} is unknown")
    _credentials(settings)  # invalid settings are an error before the first connection
    return Security(_tls_context(settings) if protocol.endswith("SSL") else None, partial(_credentials, settings))


def _credentials(settings: Mapping[str, str]) -> Credentials | None:
    try:
        return credentials(settings)
    except SaslSettingError as error:
        raise OptionError(f"kafka.{error}") from None


def _tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    # Loading these takes as long as all else here, in each process that Spark starts.
    from odradek.security.client.settings import tls_context
    from odradek.security.tls.config import TlsSettingError

    try:
        return tls_context(settings)
    except TlsSettingError as error:
        raise OptionError(f"kafka.{error}") from None


class Connection:
    """One broker. Not for several threads; after any exception it must be closed and thrown away.

    Raises:
        OSError: the broker is not there, or went away, or did not answer in `timeout_s`.
        ProtocolError: its bytes make no sense.
        ClusterError: it refuses us.
    """

    def __init__(self, host: str, port: int, security: Security, client_id: str, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: deque[tuple[int, ApiKey, int, type[Message]]] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket = socket.create_connection((host, port), timeout=min(CONNECT_TIMEOUT_S, timeout_s))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(timeout_s)
            if security.tls is not None:
                self._socket = self._wrapped(security.tls, host)
            self._negotiate()
            who = security.sasl()
            if who is not None:
                self._authenticate(who)
        except BaseException:
            self._socket.close()
            raise

    def _wrapped(self, tls: ssl.SSLContext, host: str) -> socket.socket:
        import ssl  # loaded with the context already

        try:
            return tls.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            # As with a password, and as Kafka's clients do: asking again changes nothing.
            raise ClusterError(
                f"{self.address} is not trusted: {error.verify_message}. Its certificate must be signed by one in "
                "kafka.ssl.truststore.location and name the host that is connected to"
            ) from None
        except OSError as error:
            raise ConnectionError(f"{self.address}: TLS: {error}. {WHICH_LISTENER}") from error

    def close(self) -> None:
        """Close the socket; harmless when it is closed already."""
        self._socket.close()

    @property
    def is_idle(self) -> bool:
        """Whether every request has been answered."""
        return not self._waiting

    def request(self, key: ApiKey, message: Message, answer: type[R], newest: int | None = None) -> R:
        """Send a request and wait for its answer."""
        self.send(key, message, answer, newest)
        reply = self.receive()
        assert isinstance(reply, answer)
        return reply

    def send(self, key: ApiKey, message: Message, answer: type[Message], newest: int | None = None) -> None:
        """Send a request, in no version above `newest`; `receive` gives the answers, in the order of the requests."""
        self._send(key, self._version(key, newest), message, answer)

    def receive(self) -> Message:
        """Wait for the answer to the oldest request that has none yet."""
        expected_id, key, version, answer = self._waiting[0]
        body = self._read(struct.unpack(">i", self._read(4))[0])
        header_version = API[key].response_header_version(version)
        header, position = codec.decode_prefix(ResponseHeader, body, header_version)
        if header.correlation_id != expected_id:
            raise ProtocolError(f"{self.address} answered {header.correlation_id} where {expected_id} was asked")
        self._waiting.popleft()
        return codec.decode(answer, body, version, position)

    def _send(self, key: ApiKey, version: int, message: Message, answer: type[Message]) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        head = codec.encode(header, API[key].request_header_version(version))
        body = codec.encode(message, version)
        start = struct.pack(">i", len(head) + len(body)) + head
        if len(body) < LARGE_BYTES:
            self._socket.sendall(start + body)
        else:  # two packets cost less than a copy of the body
            self._socket.sendall(start)
            self._socket.sendall(body)
        self._waiting.append((self._correlation_id, key, version, answer))

    def _version(self, key: ApiKey, newest: int | None) -> int:
        if key not in self._versions:
            raise ClusterError(f"{self.address} does not offer {key.name}")
        lowest, highest = self._versions[key]
        ours = API[key]
        version = min(highest, NEWEST[key] if newest is None else newest, ours.max_version)
        if version < max(lowest, ours.min_version):
            raise ClusterError(f"{self.address} offers {key.name} {lowest} to {highest}; none of them is spoken here")
        return version

    def _negotiate(self) -> None:
        message = ApiVersionsRequest(client_software_name="odradek-spark", client_software_version="1")
        self._send(ApiKey.API_VERSIONS, NEWEST[ApiKey.API_VERSIONS], message, ApiVersionsResponse)
        try:
            body = self._read(struct.unpack(">i", self._read(4))[0])
        except ConnectionResetError as reset:
            raise ConnectionResetError(f"{self.address} closed the connection at once. {WHICH_LISTENER}") from reset
        self._waiting.clear()
        # A broker that does not know our version answers in version 0 with error 35 (KIP-511).
        error = struct.unpack_from(">h", body, 4)[0]
        if error == ErrorCode.UNSUPPORTED_VERSION:
            self._send(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
            answer = self.receive()
        else:
            answer = codec.decode(ApiVersionsResponse, body, NEWEST[ApiKey.API_VERSIONS], 4)
        assert isinstance(answer, ApiVersionsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise ClusterError(f"{self.address} refused ApiVersions with error {answer.error_code}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _authenticate(self, who: Credentials) -> None:
        if ApiKey.SASL_HANDSHAKE not in self._versions:
            raise ClusterError(f"{self.address} offers no SASL. {WHICH_LISTENER}")
        retrying = login(who, self.address)
        try:
            asked, kind = next(retrying)
            while True:
                asked, kind = retrying.send(self.request(ApiKey(asked.KEY or 0), asked, kind))
        except StopIteration:
            return
        except RefusedLoginError as error:
            raise ClusterError(str(error)) from None

    def _read(self, size: int) -> memoryview:
        if not 0 <= size <= MAX_RESPONSE_BYTES:
            raise ProtocolError(f"{self.address} announced an answer of {size} bytes")
        buffer = bytearray(size)
        view = memoryview(buffer)
        done = 0
        while done < size:
            count = self._socket.recv_into(view[done:])
            if count == 0:
                raise ConnectionResetError(f"{self.address} closed the connection")
            done += count
        return view
