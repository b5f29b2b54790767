"""A worker process for long computations with files of this machine.

A thread would hold the interpreter lock for milliseconds, while the event loop waits. The process is another
interpreter, at low priority. It reads calls from its standard input, writes results to its standard output, and ends at
the end of its input. So it never outlives its broker, even one that was killed: two workers must not write the same
files.

Frames are a length (uint32) and a pickle; both ends are ours.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import struct
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any, BinaryIO

from odradek.common.ports import MakeAnswer, WorkerError

_LENGTH = struct.Struct(">I")
NICENESS = 10
# A shorter sleep would cost more than it delays.
MIN_SLEEP_S = 0.01


class ProcessWorker:
    """The parent's side."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, make: MakeAnswer, argument: object, *, bytes_per_second: float) -> ProcessWorker:
        """Start a process. Raises OSError if the system starts none, WorkerError if it ends at once."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "odradek.common.real_worker", stdin=PIPE, stdout=PIPE, env=environment
        )
        worker = cls(process)
        try:
            await worker.call((make, argument, bytes_per_second))
        except BaseException:
            await worker.close()
            raise
        return worker

    async def call(self, argument: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None, "both are pipes"
        data = pickle.dumps(argument)
        try:
            self._process.stdin.write(_LENGTH.pack(len(data)) + data)
            await self._process.stdin.drain()
            (length,) = _LENGTH.unpack(await self._process.stdout.readexactly(_LENGTH.size))
            result, error = pickle.loads(await self._process.stdout.readexactly(length))  # noqa: S301 - our own child
        except (asyncio.IncompleteReadError, ConnectionError) as gone:
            raise WorkerError(f"the worker ended: {gone}") from None
        if error is not None:
            raise error
        return result

    async def close(self) -> None:
        """Kill the process: its files are not used before the result of a call is returned."""
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                return
            await self._process.wait()


class Pace:
    """Limits reads and writes to so many bytes a second."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._start = time.monotonic()
        self._total = 0

    def pause(self, size_bytes: int) -> None:
        """Count more bytes, and sleep if they exceed the rate."""
        self._total += size_bytes
        ahead_s = self._total / self._rate - (time.monotonic() - self._start)
        if ahead_s > MIN_SLEEP_S:
            time.sleep(ahead_s)


def _read_calls(source: BinaryIO, calls: queue.Queue[bytes]) -> None:
    while True:
        head = source.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            # The parent has ended.
            os._exit(0)
        calls.put(source.read(_LENGTH.unpack(head)[0]))


def _picklable(error: Exception) -> Exception:
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own bytes
    except Exception as unfit:
        return WorkerError(f"{type(error).__name__}: {error} ({unfit})")
    return error if type(copy) is type(error) else WorkerError(f"{type(error).__name__}: {error}")


def main() -> None:
    """The child's side: the first call has the function that handles the others."""
    from odradek.common.real_io import RealDisk

    os.nice(NICENESS)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not come between frames
    calls: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_read_calls, args=(sys.stdin.buffer, calls), daemon=True).start()
    handler: Callable[[Any], Any] | None = None
    while True:
        received = pickle.loads(calls.get())  # noqa: S301 - our own parent
        result, error = None, None
        try:
            if handler is None:
                make, argument, bytes_per_second = received
                handler = make(RealDisk(), Pace(bytes_per_second).pause, argument)
            else:
                result = handler(received)
        except Exception as failure:
            error = _picklable(failure)
        data = pickle.dumps((result, error))
        results.write(_LENGTH.pack(len(data)) + data)
        results.flush()


if __name__ == "__main__":
    main()
