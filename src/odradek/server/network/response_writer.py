"""The sending half of a connection: one queue of bytes and file slices, sent as the peer takes them.

Fetched records stay in the page cache: on plain TCP a large slice of a log goes out by `sendfile`, and a small one is
read and joins the write of its header. Measured with `bench/sendfile_bench.py`, see SENDFILE_MIN_BYTES. We write to the
socket ourselves, past the transport's own buffer, because uvloop has no sendfile and keeps no order between its buffer
and ours; without a socket (TLS, the simulator) everything goes through the transport, in pieces, so that a peer
that does not read costs one piece.

Nothing is sent beyond what the peer takes: the queue waits for the socket, and `Connection` begins no more requests
while it waits.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Timer, no_timer
from odradek.server.network.request_times import RequestTimes

# Two-core machine, loopback, records in the page cache: up to 8 KiB the copy is cheaper, from 16 to 128 KiB sendfile,
# by a third at this size. Above, blocking sockets favour the copy again; ours send what the peer takes, in pieces.
SENDFILE_MIN_BYTES = 32 * 1024
# The bytes that one connection may send in one turn, so that a fast reader leaves the loop to others.
TURN_BYTES = 1024 * 1024
# A file slice goes through a transport in pieces of this size.
PIECE_BYTES = 256 * 1024
# A client over TLS that does not read holds four of them; half as many bytes cost no more processor time.
TRANSPORT_PIECE_BYTES = 128 * 1024
MAX_VECTORS = 64
# How often a peer is offered more where no descriptor is left to watch it by.
RETRY_S = 0.01

# A tuple: `isinstance` with a union of types takes several times as long, most of it to make the union.
_IN_MEMORY = (bytes, bytearray, memoryview)
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_HAS_SENDFILE = hasattr(os, "sendfile")


def is_file_slice(chunk: Any) -> bool:
    """Whether a piece of a response is still in a file."""
    return not isinstance(chunk, _IN_MEMORY)


class ResponseWriter:
    """The queue, which both ways of sending share."""

    __slots__ = (
        "_loop",
        "_on_drained",
        "_queue",
        "_sent_of_head",
        "_timed",
        "_transport",
        "pending_bytes",
        "sent_bytes",
        "timer",
        "waiting",
    )

    def __init__(self, transport: asyncio.Transport, on_drained: Callable[[], None]) -> None:
        self._transport = transport
        self._on_drained = on_drained
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Any] = deque()
        self._sent_of_head = 0
        self.pending_bytes = 0
        self.sent_bytes = 0
        self.timer: Timer = no_timer
        self._timed: deque[RequestTimes] = deque()
        self.waiting = False  # for the peer or for our next turn; on_drained follows

    def add(self, chunks: list[Any], times: RequestTimes | None = None) -> None:
        """Queue the pieces of one response; nothing is sent before `flush`. `times` gets to know when all is."""
        before = self.pending_bytes
        for chunk in chunks:
            size = len(chunk)
            if size:
                self._queue.append(chunk)
                self.pending_bytes += size
        if times is not None:
            size = self.pending_bytes - before
            if size:
                times.response_bytes, times.end_position = size, self.sent_bytes + self.pending_bytes
                self._timed.append(times)
            else:
                times.sent(times.ready_ns)

    def flush(self) -> None:
        """Send as much as the peer and this turn take now; the rest follows by itself."""
        raise AssertionError("a subclass sends")

    def close(self) -> None:
        """Forget what was not sent, and let the files go."""
        self._queue.clear()
        self._timed.clear()
        self.pending_bytes = 0

    def _remove_sent(self, count: int) -> None:
        """`count` bytes from the head of the queue are sent."""
        self.pending_bytes -= count
        self.sent_bytes += count
        count += self._sent_of_head
        queue = self._queue
        while queue and count >= (size := len(queue[0])):
            count -= size
            queue.popleft()
        self._sent_of_head = count
        if self._timed:
            self._complete_sent()

    def _complete_sent(self) -> None:
        timed, sent_bytes = self._timed, self.sent_bytes
        if timed[0].end_position <= sent_bytes:
            timer = self.timer
            now_ns = timer()
            while timed and timed[0].end_position <= sent_bytes:
                timed.popleft().sent(now_ns)

    def _head_piece(self, limit: int) -> bytes:
        """The next bytes of a file slice at the head of the queue."""
        head = self._queue[0]
        start = self._sent_of_head
        data: bytes = head.file.read_at(head.position + start, min(limit, head.length - start))
        if not data:
            raise OSError(f"{head.file.path} is shorter than what was to be sent of it")
        return data


class SocketWriter(ResponseWriter):
    """Plain TCP with a real descriptor."""

    __slots__ = ("_fd", "_own_below", "_retry", "_socket", "_watched")

    def __init__(
        self, transport: asyncio.Transport, on_drained: Callable[[], None], fd: int, *, own_below: int = INT32_MAX
    ) -> None:
        """`own_below`: a second descriptor is used only where its number is smaller, see `Descriptors`."""
        super().__init__(transport, on_drained)
        self._fd = fd
        self._own_below = own_below
        self._retry: asyncio.TimerHandle | None = None
        # A descriptor of our own, made when a file is to be sent or the peer does not keep up: idle connections and
        # producers need none. The transport's own one may not be watched by the loop a second time.
        self._socket: socket.socket | None = None
        self._watched = False

    def flush(self) -> None:
        if not self.waiting:
            self._send_turn()

    def _send_turn(self) -> None:
        budget = TURN_BYTES
        while self._queue and not self._transport.is_closing():
            try:
                use_sendfile = self._uses_sendfile(self._queue[0])
                sent, wanted = self._send_file(budget) if use_sendfile else self._send_bytes()
            except (BlockingIOError, InterruptedError):
                self._wait_until_writable()
                return
            except OSError:
                self._transport.abort()
                return
            self._remove_sent(sent)
            budget -= sent
            # A partial write means that the socket is full: another would only raise BlockingIOError.
            if sent < wanted or (budget <= 0 and self._queue):
                self._wait_until_writable()
                return

    def close(self) -> None:
        super().close()
        self._stop_watching()
        if self._retry is not None:
            self._retry.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _uses_sendfile(self, chunk: Any) -> bool:
        """Whether a piece is a large slice of a file that has a descriptor."""
        if len(chunk) < SENDFILE_MIN_BYTES or not _HAS_SENDFILE or not is_file_slice(chunk):
            return False
        return chunk.file.fileno() is not None

    def _send_file(self, budget: int) -> tuple[int, int]:
        """Send of the file slice at the head; how many bytes were taken, and how many were offered."""
        head = self._queue[0]
        start = self._sent_of_head
        count = min(head.length - start, budget)
        sent = os.sendfile(self._fd, head.file.fileno(), head.position + start, count)
        if not sent:
            raise OSError(f"{head.file.path} is shorter than what was to be sent of it")
        return sent, count

    def _send_bytes(self) -> tuple[int, int]:
        """Gather bytes, and small slices of files, into one write; how many were taken, and how many were offered."""
        vectors: list[Any] = []
        more = False
        skip = self._sent_of_head
        for chunk in self._queue:
            if len(vectors) == MAX_VECTORS:
                break
            if is_file_slice(chunk):
                if self._uses_sendfile(chunk):
                    more = True
                    break
                if not vectors:
                    vectors.append(self._head_piece(PIECE_BYTES))
                    break
                if chunk.length > SENDFILE_MIN_BYTES:
                    break
                data = chunk.read()
                if len(data) < chunk.length:
                    break  # the file is cut off: nothing may take the place of what is missing
                vectors.append(data)
            else:
                vectors.append(memoryview(chunk)[skip:] if skip else chunk)
            skip = 0
        wanted = sum(map(len, vectors))
        if more and self._has_own_socket():
            assert self._socket is not None
            return self._socket.sendmsg(vectors, [], _MSG_MORE), wanted
        if len(vectors) == 1:
            return os.write(self._fd, vectors[0]), wanted
        return os.writev(self._fd, vectors), wanted

    def _has_own_socket(self) -> bool:
        """Whether there is a descriptor of our own, made now if need be; not where others need it more."""
        if self._socket is None:
            try:
                fd = os.dup(self._fd)
            except OSError:
                return False
            if fd >= self._own_below:
                os.close(fd)
                return False
            self._socket = socket.socket(fileno=fd)
            self._socket.setblocking(False)
        return True

    def _wait_until_writable(self) -> None:
        """Continue when the socket is writable, or, if the peer keeps up, in the loop's next turn."""
        self.waiting = True
        if self._watched:
            return
        if not self._has_own_socket():
            self._retry = self._loop.call_later(RETRY_S, self._writable)
            return
        assert self._socket is not None
        self._watched = True
        self._loop.add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        self.waiting = False
        self._send_turn()
        if not self.waiting:
            # Watched from the first wait to the last byte: a large response waits often, and to begin and end costs
            # more than the wait.
            self._stop_watching()
        if not self._queue:
            self._on_drained()

    def _stop_watching(self) -> None:
        if self._watched:
            assert self._socket is not None
            self._loop.remove_writer(self._socket.fileno())
            self._watched = False


class TransportWriter(ResponseWriter):
    """Through asyncio's transport: TLS, or a network that has no sockets."""

    __slots__ = ("_paused",)

    def __init__(self, transport: asyncio.Transport, on_drained: Callable[[], None]) -> None:
        super().__init__(transport, on_drained)
        self._paused = False
        transport.set_write_buffer_limits(high=TRANSPORT_PIECE_BYTES)

    def flush(self) -> None:
        while self._queue and not self._paused and not self._transport.is_closing():
            if is_file_slice(self._queue[0]):
                try:
                    data = self._head_piece(TRANSPORT_PIECE_BYTES)
                except OSError:
                    self._transport.abort()
                    return
            else:
                gathered: list[Any] = []
                for chunk in self._queue:
                    if is_file_slice(chunk) or len(gathered) == MAX_VECTORS:
                        break
                    gathered.append(chunk)
                data = b"".join(gathered)
            self._transport.write(data)
            self._remove_sent(len(data))
        self.waiting = self._paused

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._paused = self.waiting = True

    def resume(self) -> None:
        """The transport's buffer has room again."""
        self._paused = False
        self.flush()
        if not self._queue and not self.waiting:  # with its last piece the buffer may be full again
            self._on_drained()
