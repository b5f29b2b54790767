"""A forked planner of Spark's streams is as the one that Spark starts: its variables, folder, output and end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes.forked_readers import HASH_SEED, RUNNER, forked_readers
from tests.support.waiting import PATIENCE_S, eventually

SECRET = "a-secret"


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    pytest.importorskip("pyspark")
    with tempfile.TemporaryDirectory(prefix="readers-") as folder, forked_readers(Path(folder)) as python:
        yield python


@pytest.fixture
def spark() -> Iterator[socket.socket]:
    """The socket on which Spark's virtual machine waits for the processes that it has started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


def started(python: str, spark: socket.socket, folder: Path, **variables: str) -> subprocess.Popen[bytes]:
    """A planner, as Spark starts it."""
    theirs = {"PYTHON_WORKER_FACTORY_PORT": str(spark.getsockname()[1]), "PYTHON_WORKER_FACTORY_SECRET": SECRET}
    environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED, **theirs, **variables}
    return subprocess.Popen(
        [python, "-m", RUNNER], stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env=environment
    )


def connected(spark: socket.socket) -> tuple[socket.socket, int]:
    """The connection of the planner that was started, and its pid."""
    connection, _ = spark.accept()
    connection.settimeout(PATIENCE_S)
    assert connection.recv(4 + len(SECRET), socket.MSG_WAITALL) == len(SECRET).to_bytes(4, "big") + SECRET.encode()
    connection.sendall(b"\0\0\0\2ok")
    return connection, int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")


def test_a_forked_reader_has_sparks_files_and_ends_with_its_connection(
    python: str, spark: socket.socket, tmp_path: Path
) -> None:
    with started(python, spark, tmp_path) as process:
        connection, pid = connected(spark)
        with connection:
            found = Path(f"/proc/{pid}")
            assert pid != process.pid and b"forked_readers" in (found / "cmdline").read_bytes()
            assert (found / "cwd").readlink() == tmp_path
            assert process.stderr is not None
            assert (found / "fd/2").readlink() == Path(f"/proc/self/fd/{process.stderr.fileno()}").readlink()
        process.communicate(timeout=PATIENCE_S)
        eventually(lambda: not found.exists(), "it is waited for")


def test_a_signal_to_what_spark_started_reaches_it(python: str, spark: socket.socket, tmp_path: Path) -> None:
    with started(python, spark, tmp_path) as process:
        connection, _ = connected(spark)
        with connection:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)
            assert connection.recv(1) == b"", "it has ended"


@pytest.mark.parametrize(("seed", "forked"), [(HASH_SEED, True), ("1", False)])
def test_another_hash_seed_is_a_process_of_its_own(
    python: str, spark: socket.socket, tmp_path: Path, seed: str, forked: bool
) -> None:
    with started(python, spark, tmp_path, PYTHONHASHSEED=seed) as process:
        connection, pid = connected(spark)
        connection.close()
        process.communicate(timeout=PATIENCE_S)
        assert (pid != process.pid) == forked


def test_all_else_is_run_by_the_interpreter(python: str) -> None:
    text = "import sys, pyspark_odradek; print(sys.argv[1:], sys.flags.no_site)"
    done = subprocess.run([python, "-c", text, "x"], capture_output=True, text=True, check=True)
    assert done.stdout == "['x'] 0\n"
