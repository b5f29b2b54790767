"""A PostgreSQL of its own for tests, from Debian's package: a server over a folder in /tmp, on a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import pytest

from tests.support.nodes.node import free_port


def find_postgres() -> Path | None:
    """The folder of initdb and postgres; None where the package is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: path.parts[-3])
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).parent if on_path else None


class Postgres:
    """A server without durability. It refuses to run as root, so root runs it as the user that its package made."""

    def __init__(self, *settings: str) -> None:
        """`settings` are of the server, as NAME=VALUE."""
        binaries = find_postgres()
        if binaries is None:
            pytest.skip("needs PostgreSQL: apt-get install postgresql")
        self.binaries = binaries
        self.settings = settings
        self.port = free_port()
        self.user = "postgres" if os.getuid() == 0 else None
        if self.user is not None and self.user not in {entry.pw_name for entry in pwd.getpwall()}:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        self.folder = Path(tempfile.mkdtemp(prefix="odradek-postgres-"))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Postgres:
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        command: list[str | Path] = [self.binaries / "initdb", "-D", self.folder / "data", *options]
        done = subprocess.run(command, user=self.user, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        self.start()
        return self

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}"]
        # The server's own cleaning takes locks, for which the sinks of tests would wait.
        settings += ["fsync=off", "timezone=UTC", "autovacuum=off", *self.settings]
        command = [str(self.binaries / "postgres"), "-D", str(self.folder / "data")]
        for setting in settings:
            command += ["-c", setting]
        self._launch(command)
        ready = [str(self.binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + 120
        while subprocess.run(ready).returncode != 0:
            assert time.monotonic() < deadline, "PostgreSQL did not start in 120 s"
            time.sleep(0.05)
            if self.process is None or self.process.poll() is not None:
                said = (self.folder / "log").read_text()
                # The children of a server that was killed let its shared memory go when they notice.
                assert any("shared memory" in line for line in said.splitlines()[-3:]), said
                self._launch(command)

    def _launch(self, command: list[str]) -> None:
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(command, user=self.user, stdout=output, stderr=output, cwd="/")

    def kill(self) -> None:
        """Kill the server with SIGKILL and start it again: sessions are gone, committed rows are not."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
