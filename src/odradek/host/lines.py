"""Merges the output of brokers into one stream, with the broker in each line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MAX_LINE_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024


def marked(node_id: int, line: bytes) -> bytes:
    """A line with its broker: `[3] …`, or a field of a JSON object."""
    if line.startswith(b'{"'):
        return b'{"node": %d, %s\n' % (node_id, line[1:])
    return b"[%d] %s\n" % (node_id, line)


async def forward(reader: asyncio.StreamReader, on_line: Callable[[bytes], None]) -> None:
    """Give each line to `on_line` until the stream ends; one that is too long in several."""
    left = b""
    while chunk := await reader.read(READ_BYTES):
        *whole, left = (left + chunk).split(b"\n")
        for line in whole:
            on_line(line)
        if len(left) > MAX_LINE_BYTES:
            on_line(left)
            left = b""
    if left:
        on_line(left)
