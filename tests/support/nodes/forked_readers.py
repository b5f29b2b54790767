"""Spark's processes that plan the batches of a stream, forked from one that has imported what they import.

Spark starts one for each query that reads with a data source in Python, and half of its time goes into imports.
Where `PYSPARK_PYTHON` is what `forked_readers` yields, such a process is a fork of this module, run as

    python -m tests.support.nodes.forked_readers SOCKET

until its input ends. All else that Spark starts is run by this interpreter, as always. A forked process has the
variables, the folder, the input and the output that Spark gave, and Spark's signals reach it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
# The imports of the runner, and of this package's streams in it; not the runner, which runs as `__main__`.
IMPORTED = (
    "pyspark.sql.datasource_internal",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker_util",
    "pyspark_odradek.source.group_member",
    "pyspark_odradek.source.readers",
)
HASH_SEED = "0"  # as Spark gives it to all of its processes in Python
# What Spark starts in place of the interpreter: in nothing but the standard library, without `site`, for 15 ms.
STARTED = f"""#!{{python}} -IS
import os, sys
if sys.argv[1:] != ["-m", "{RUNNER}"] or os.environ.get("PYTHONHASHSEED", "{HASH_SEED}") != "{HASH_SEED}":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
import json, signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until there is someone to pass it on to
server = socket.socket(socket.AF_UNIX)
server.connect({{path!r}})
socket.send_fds(server, [b"1"], [0, 1, 2])
with server, server.makefile("rw") as lines:
    lines.write(json.dumps([os.getcwd(), dict(os.environ)]) + chr(10))
    lines.flush()
    pid = int(lines.readline())
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    lines.read()
"""


@contextlib.contextmanager
def forked_readers(folder: Path) -> Iterator[str]:
    """The value of `PYSPARK_PYTHON` for this block; the path of `folder` is short, as the path of a socket must be."""
    path = folder / "socket"
    python = folder / "python"
    python.write_text(STARTED.format(python=sys.executable, path=str(path)))
    python.chmod(0o755)
    command = [sys.executable, "-m", "tests.support.nodes.forked_readers", str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as server:
        assert server.stdout and server.stdout.readline(), "the process that forks readers has ended"
        yield str(python)


def _serve(listener: socket.socket) -> tuple[socket.socket, dict[str, Any]] | None:
    """Fork a process for each request: return the connection and the request in it, and None here when input ends."""
    signal.signal(signal.SIGCHLD, _reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: who asks decides what ends
    while True:
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        if 0 in ready:
            return None
        asker, _ = listener.accept()
        if not os.fork():
            listener.close()
            return asker, _request(asker)
        asker.close()


def _reap(*_: object) -> None:
    """Wait for all that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _request(asker: socket.socket) -> dict[str, Any]:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, descriptors, _, _ = socket.recv_fds(asker, 1, 3)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    with asker.makefile("r") as lines:
        folder, environment = json.loads(lines.readline())
    return {"folder": folder, "environment": environment}


def _become(request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    more = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:0] = [request["folder"], *more]
    sys.argv = [RUNNER]


def main() -> None:
    """Serve; a forked process runs the worker that Spark requested, and ends the connection when the worker ends."""
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        print("ready", flush=True)
        forked = _serve(listener)
    if forked is not None:
        asker, request = forked
        with asker:
            _become(request)
            asker.sendall(b"%d\n" % os.getpid())
            runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
