"""A client that can say anything: requests by version, raw bytes, and silence."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from odradek.protocol import codec
from odradek.protocol.apis import API, ApiKey


class Wire:
    """One blocking connection to a broker; nothing is negotiated, every version is the caller's choice."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout_s: float = 90.0, client_id: str = "test") -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._client_id = client_id.encode()

    def send(self, api_key: ApiKey, version: int, request: Any) -> int:
        """Send one request without waiting; returns its correlation id."""
        self._correlation_id += 1
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(self._client_id)) + self._client_id
        if API[api_key].request_header_version(version) >= 2:
            header += b"\x00"
        body = codec.encode(request, version)
        self.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        return self._correlation_id

    def receive(self, api_key: ApiKey, version: int, correlation_id: int | None = None) -> Any:
        """Read one response; it must answer `correlation_id` where that is given."""
        frame = self.receive_frame()
        (answered,) = struct.unpack_from(">i", frame)
        assert correlation_id in (None, answered), f"answer to {answered}, not to {correlation_id}"
        spec = API[api_key]
        start = 4
        if spec.response_header_version(version) >= 1:
            assert frame[4] == 0, "tagged fields in a response header"
            start = 5
        return codec.decode(spec.response, frame, version, start)

    def request(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Send one request and return its response."""
        return self.receive(api_key, version, self.send(api_key, version, request))

    def receive_frame(self) -> bytes:
        """One frame without its length; raises ConnectionError where the broker closed."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def is_closed_by_peer(self) -> bool:
        """Whether the broker has ended the connection, waiting for it as long as the timeout allows."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exactly(self, length: int) -> bytes:
        pieces = []
        while length:
            piece = self.socket.recv(min(length, 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)
