"""A page of the console as a browser has it, without one: its HTML, and the messages of its web socket."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode
from uuid import uuid4

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import PATIENCE_S

_CLIENT = re.compile(r"[\"']client_id[\"']\s*:\s*[\"']([0-9a-f-]{36})[\"']")
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@contextmanager
def live_page(client: httpx.Client, path: str) -> Iterator[LivePage]:
    """Open a page with the session of a client of HTTP."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    found = _CLIENT.search(answer.text)
    assert found is not None, answer.text
    query = urlencode(
        {
            "client_id": found[1],
            "tab_id": uuid4(),
            "document_id": uuid4(),
            "next_message_id": 0,
            "implicit_handshake": "true",
        }
    )
    url = str(client.base_url).rstrip("/")
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items()), "Origin": url}
    address = f"{url.replace('http', 'ws', 1)}{SOCKET}&{query}"
    with connect(address, additional_headers=headers, proxy=None, max_size=None) as socket:
        socket.send("40")
        yield LivePage(path, answer.text, socket, found[1])


class LivePage:
    """An open page; `text` is all that it was sent until now."""

    def __init__(self, path: str, text: str, socket: ClientConnection, client_id: str) -> None:
        self.client_id = client_id
        self.path = path
        self.text = text
        self._socket = socket

    def says(self, text: str) -> bool:
        """Wait until the page has been sent this text."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"{self.path} never said {text!r}: {self.text[-3000:]}"
            self._receive(left)
        return True

    def send(self, packet: str) -> None:
        """Send a packet of Engine.IO."""
        self._socket.send(packet)

    def is_closed(self) -> bool:
        """Wait until the console closes the web socket."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            while (left := deadline - time.monotonic()) > 0:
                self._receive(left)
        except ConnectionClosed:
            return True
        return False

    def _receive(self, within_s: float) -> None:
        try:
            message = str(self._socket.recv(timeout=within_s))
        except TimeoutError:
            return
        if message == "2":
            self._socket.send("3")
        else:
            self.text += message
