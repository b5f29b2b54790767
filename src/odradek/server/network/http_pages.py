"""A few pages over plain HTTP, for programs that scrape metrics or check a node's health.

A connection serves one small GET and is closed. The page is computed on request, at once or by a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

MAX_REQUEST_BYTES = 16 * 1024
TIMEOUT_S = 10.0
OK = "200 OK"
UNAVAILABLE = "503 Service Unavailable"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Page:
    """A response; `status` as in `200 OK`."""

    body: bytes
    status: str = OK
    content_type: str = TEXT


FAILED = Page(b"", "500 Internal Server Error")
Pages = Mapping[bytes, Callable[[], Page | asyncio.Future[Page]]]


class HttpConnection(asyncio.Protocol):
    """One HTTP connection: one request, one answer."""

    def __init__(self, pages: Pages, clients_below: int) -> None:
        """
        Args:
            pages: by path.
            clients_below: a connection whose descriptor is not below it is refused.
        """
        self._pages = pages
        self._clients_below = clients_below
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= self._clients_below:
            self._transport.abort()
            return
        self._set_timer(self._transport)

    def _set_timer(self, transport: asyncio.Transport) -> None:
        """Close the connection of a peer that neither sends a request nor reads in time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            self._answer()
        elif len(self._received) > MAX_REQUEST_BYTES:
            self._send(Page(b"", "431 Request Header Fields Too Large"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self) -> None:
        method, _, rest = self._received.partition(b"\n")[0].partition(b" ")
        page = self._pages.get(rest.split()[0].partition(b"?")[0] if rest.split() else b"")
        if method not in (b"GET", b"HEAD"):
            self._send(Page(b"", "405 Method Not Allowed"))
        elif page is None:
            self._send(Page(b"there are " + b" ".join(sorted(self._pages)) + b"\n", "404 Not Found"))
        else:
            self._send_when_ready(page(), is_head=method == b"HEAD")

    def _send_when_ready(self, page: Page | asyncio.Future[Page], *, is_head: bool) -> None:
        if isinstance(page, Page):
            self._send(page, is_head=is_head)
            return

        def on_ready(done: asyncio.Future[Page]) -> None:
            failed = done.cancelled() or done.exception() is not None
            self._send(FAILED if failed else done.result(), is_head=is_head)

        assert self._transport is not None and self._timer is not None
        self._transport.pause_reading()
        self._timer.cancel()
        page.add_done_callback(on_ready)

    def _send(self, page: Page, *, is_head: bool = False) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._set_timer(self._transport)
        head = (
            f"HTTP/1.1 {page.status}\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode())
        if not is_head:
            self._transport.write(page.body)
        self._transport.close()
