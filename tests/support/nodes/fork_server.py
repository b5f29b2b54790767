"""A process that has imported all of a node, and forks one for each request, so that imports cost their time once.

    python -m tests.support.nodes.fork_server FD

reads requests from the socket FD until its other end is closed (tests/support/nodes/forked.py). A forked node is a
process like any other: with its own pid, files, signals, limits and environment, and it ends as `odradek` ends. The
server has no thread when it forks, and a request leaves nothing in it but the pipe for the exit code of the node.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

# The modules that a node imports while it starts; `odradek.cli.node` imports them late, for commands without a node.
IMPORTED = (
    "odradek.cli.node",
    "odradek.common.real_io",
    "odradek.server.startup.format",
    "odradek.server.startup.honoured_settings",
    "odradek.server.startup.process",
    "odradek.settings.node",
)
LENGTH_BYTES = 4


class _Server:
    """Forks, and waits for what it has forked.

    Attributes:
        ends: by process, the pipe for how it ended.
    """

    def __init__(self, requests: socket.socket) -> None:
        self.requests = requests
        self.ends: dict[int, int] = {}
        self.woken, waker = os.pipe()
        self.waker = waker
        for end in (self.woken, waker):
            os.set_blocking(end, False)

    def serve(self) -> list[str] | None:
        """Returns in each forked process its command line, and here None when there is no one left who asks."""
        signal.set_wakeup_fd(self.waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: who asks decides what ends
        while True:
            ready, _, _ = select.select([self.requests.fileno(), self.woken], [], [])
            if self.woken in ready:
                os.read(self.woken, 1 << 16)
                self._reap()
            if self.requests.fileno() in ready:
                request, descriptors = _receive(self.requests)
                if request is None:
                    return None
                output, end = descriptors
                pid = os.fork()
                if not pid:
                    os.close(end)
                    self._become(request, output)
                    command: list[str] = request["command"]
                    return command
                os.close(output)
                self.ends[pid] = end
                self.requests.sendall(pid.to_bytes(LENGTH_BYTES, "big"))

    def _reap(self) -> None:
        while self.ends:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            end = self.ends.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # who asked for it may be gone
                os.write(end, os.waitstatus_to_exitcode(status).to_bytes(LENGTH_BYTES, "big", signed=True))
            os.close(end)

    def _become(self, request: dict[str, Any], output: int) -> None:
        """Set up the forked process: close everything of the server, and apply the request."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if request["own_group"]:
            os.setpgid(0, 0)
        self.requests.close()
        for descriptor in (self.woken, self.waker, *self.ends.values()):
            os.close(descriptor)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
        os.chdir(request["folder"])
        for kind, limits in request["limits"]:
            if resource.getrlimit(kind) != tuple(limits):
                resource.setrlimit(kind, limits)


def _receive(requests: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """A request and the descriptors that come with it."""
    first, descriptors, _, _ = socket.recv_fds(requests, LENGTH_BYTES, 2)
    if not first:
        return None, []
    while len(first) < LENGTH_BYTES:
        first += requests.recv(LENGTH_BYTES - len(first))
    left = int.from_bytes(first, "big")
    text = bytearray()
    while len(text) < left:
        more = requests.recv(left - len(text))
        if not more:
            return None, []
        text += more
    return json.loads(text), descriptors


def main() -> None:
    """Serve; in what was forked, run the command and end as it ends."""
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()
    command = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if command is not None:
        from odradek.cli import main as odradek

        sys.argv = command
        odradek()


if __name__ == "__main__":
    main()
