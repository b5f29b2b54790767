"""A small HTTP GET for the JSON pages of brokers and of the host."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from odradek.settings.listeners import WILDCARDS

# Shorter than the timeout of requests to the host, whose page needs the pages of all brokers.
BROKER_PATIENCE_S = 2.0
DRAIN_PATIENCE_S = 5.0
HOST_PATIENCE_S = 20.0
MAX_ANSWER_BYTES = 1024 * 1024


async def get_json(
    address: tuple[str, int], path: str, *, patience_s: float = BROKER_PATIENCE_S
) -> dict[str, Any] | None:
    """The JSON object of a page, whatever its status; None if there is no response in time."""
    host, port = address
    near = ("127.0.0.1" if host in WILDCARDS else host, port)
    try:
        async with asyncio.timeout(patience_s):
            body = await _get(near, path)
        found = json.loads(body)
    except (OSError, ValueError, EOFError, TimeoutError):
        return None
    return found if isinstance(found, dict) else None


async def _get(address: tuple[str, int], path: str) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n\r\n".encode())
        received = bytearray()
        while chunk := await reader.read(65536):
            received += chunk
            if len(received) > MAX_ANSWER_BYTES:
                raise ValueError("a page that is too long")
        return bytes(received).partition(b"\r\n\r\n")[2]
    finally:
        writer.transport.abort()
