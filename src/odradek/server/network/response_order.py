"""Responses leave in the order of their requests, whichever is ready first."""

from __future__ import annotations

from collections import deque
from typing import Any

from odradek.server.network.request_times import RequestTimes
from odradek.server.network.response_writer import ResponseWriter


class ResponseSlot:
    """The place of one response; `chunks` are None until it is ready, `times` unless it is timed."""

    __slots__ = ("chunks", "times")

    def __init__(self) -> None:
        self.chunks: list[Any] | None = None
        self.times: RequestTimes | None = None


class ResponseOrder:
    """The responses of one connection that are waited for, or wait for those before them."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[ResponseSlot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    def place(self) -> ResponseSlot:
        """The next place."""
        slot = ResponseSlot()
        self._slots.append(slot)
        return slot

    def add(
        self, slot: ResponseSlot | None, chunks: list[Any], writer: ResponseWriter, times: RequestTimes | None = None
    ) -> None:
        """Hand a response to the writer once those before it are; without a slot it has the next place."""
        if slot is None:
            if not self._slots:
                writer.add(chunks, times)
                return
            slot = self.place()
        slot.chunks, slot.times = chunks, times
        while self._slots and self._slots[0].chunks is not None:
            first = self._slots.popleft()
            writer.add(first.chunks or [], first.times)
