"""One request over HTTPS; blocks. For rare requests: the keys and the tokens of an issuer."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from dataclasses import dataclass
from functools import partial
from typing import Any

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Patience:
    """The time limits of a connection, and of the whole response after it."""

    connect_s: float = TIMEOUT_S
    read_s: float = TIMEOUT_S


_USUAL = Patience()
MOST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: only the configuration decides the address of a document."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def read_https(url: str, context: ssl.SSLContext) -> bytes:
    """A document of at most MOST_BYTES.

    Raises:
        OSError: it is not served to us: no connection, no trust, no status 200, too long, or too slow.
        ValueError: the address is no https:// one.
    """
    if not url.lower().startswith("https://"):
        raise ValueError("the address must begin with https://")
    request = urllib.request.Request(url)  # noqa: S310 - https alone, as was just seen
    return exchange(request, context)


class _Answer(io.RawIOBase):
    """Reads from a peer until a deadline, which holds for headers and document together, however slowly they arrive."""

    def __init__(self, sock: socket.socket, read_s: float) -> None:
        self._sock, self._read_s = sock, read_s
        self._ends_s = time.monotonic() + read_s
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._ends_s - time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            self._sock.settimeout(left_s)
            return self._raw.readinto(buffer)
        except TimeoutError:
            raise TimeoutError(f"the answer did not come within {self._read_s:g} s") from None

    def close(self) -> None:
        self._raw.close()
        super().close()

    def makefile(self, *_: object) -> io.BufferedReader:
        """A buffered reader, as of a socket, for the library's reader of responses."""
        return io.BufferedReader(self)


class _Http(http.client.HTTPConnection):
    def __init__(self, *arguments: Any, read_s: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._read_s = read_s

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self._read_s)

    def response_class(self, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:  # type: ignore[override]  # a class there
        return http.client.HTTPResponse(_Answer(sock, self._read_s), **options)  # type: ignore[arg-type]  # it only reads


class _Https(_Http, http.client.HTTPSConnection):
    """The same behind a handshake."""


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    def __init__(self, context: ssl.SSLContext, read_s: float) -> None:
        super().__init__(context=context)
        self._tls, self._read_s = context, read_s

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(_Http, read_s=self._read_s), req)

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(_Https, read_s=self._read_s), req, context=self._tls)


def exchange(request: urllib.request.Request, context: ssl.SSLContext, patience: Patience = _USUAL) -> bytes:
    """The answer to a request, of at most MOST_BYTES. No redirect is followed, which would take secrets elsewhere.

    Raises:
        OSError: as `read_https`; an HTTPError, which must be closed, where the status is not 200 to 299.
    """
    handler = _Handler(context, patience.read_s)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(), handler, _NoRedirects())
    data = bytearray()
    with opener.open(request, timeout=patience.connect_s) as answer:
        while piece := answer.read1(_CHUNK_BYTES):
            data += piece
            if len(data) > MOST_BYTES:
                raise OSError(f"the document has more than {MOST_BYTES} bytes")
    return bytes(data)
