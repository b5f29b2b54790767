"""A client that asks one small question after the other, and knows how long it waited for the answers."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from odradek.protocol.apis import ApiKey
from tests.support.clients.wire import Wire

QUESTION = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1)
PAUSE_S = 0.01


class Canary:
    """Asks from a thread of its own for as long as the block lasts.

    Attributes:
        longest_wait_s: for one answer; an answer that never came is an error at the end of the block.
        answers: how many there were.
    """

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` may be `Node.cpu_s`, which says what the node did meanwhile, however busy the machine is."""
        self.longest_wait_s = 0.0
        self._clock = clock
        self.answers = 0
        self._wire = Wire(port)
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._send_until_ended, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._wire.close()
        if error is None and self._error is not None:
            raise AssertionError("the canary was not answered") from self._error

    def _send_until_ended(self) -> None:
        try:
            while not self._ended.wait(PAUSE_S):
                start = self._clock()
                self._wire.socket.sendall(QUESTION)
                self._wire.receive_frame()
                self.answers += 1
                self.longest_wait_s = max(self.longest_wait_s, self._clock() - start)
        except (OSError, ConnectionError) as error:
            self._error = error
