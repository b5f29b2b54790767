"""Nodes of a cluster as processes of their own: to be killed with -9, stopped, paused and started again."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, Protocol, Self

from odradek.common.errors import OdradekError
from odradek.common.real_io import RealDisk
from odradek.testing.layout import NodePlan, bootstrap_servers, format_cluster, plan_cluster

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02
# Two equal signals that come at once count as one.
BETWEEN_SIGNALS_S = 0.02
LOG_TAIL_CHARS = 4000
# ApiVersions, version 0: key 18, version 0, correlation id 1, no client id. A node answers it when it serves.
_ARE_YOU_THERE = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class NodeFailedError(OdradekError):
    """A node did not start or stop; the text has the end of its log.

    Attributes:
        summary: the error in one line.
    """

    def __init__(self, summary: str, log_tail: str = "") -> None:
        super().__init__(f"{summary}:\n{log_tail}" if log_tail else summary)
        self.summary = summary


class PortInUseError(OdradekError):
    """Somebody else listens where a node would."""


class RunningProcess(Protocol):
    """The interface of a node's process, as of subprocess.Popen."""

    @property
    def pid(self) -> int:
        """The process id of the operating system."""

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code when it has ended; raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""

    def kill(self) -> None:
        """Sends SIGKILL."""


def run_command(command: Sequence[str], environment: Mapping[str, str], output: BinaryIO) -> RunningProcess:
    """A process for a command, which prints to `output` and has no input."""
    # A process group of its own: Ctrl-C in a terminal reaches only this process, which stops the nodes cleanly.
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment,
        process_group=0,
    )


class NodeProcess:
    """One node in its own process, with a directory that stays.

    Attributes:
        begin: starts the process of a command; tests with hundreds of nodes may use a cheaper function.
    """

    begin: ClassVar[Callable[[Sequence[str], Mapping[str, str], BinaryIO], RunningProcess]] = staticmethod(run_command)

    def __init__(self, plan: NodePlan, launcher: Sequence[str] = ()) -> None:
        """`launcher` is a command that becomes the node's, as `ip netns exec NAME` does."""
        self.plan = plan
        self.launcher = tuple(launcher)
        self.environment: dict[str, str] = {}
        self.output = plan.directory / "node.log"
        self.process: RunningProcess | None = None
        self.stop_timeout_s = STOP_TIMEOUT_S
        self.paused = False

    @property
    def node_id(self) -> int:
        return self.plan.node_id

    @property
    def bootstrap(self) -> str:
        """The address of this broker for clients."""
        return f"{self.plan.host}:{self.plan.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"node {self.node_id} does not run"
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives, paused or not."""
        return self.process is not None and self.process.poll() is None

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        assert not self.running, f"node {self.node_id} runs already"
        command = [*self.launcher, sys.executable, "-m", "odradek", "broker", "--config", str(self.plan.config)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.environment}
        with self.output.open("ab") as output:
            self.process = type(self).begin(command, environment, output)
        self.paused = False

    def start(self) -> Self:
        """Start the process and wait until it serves. Raises NodeFailedError."""
        self.launch()
        self.await_ready()
        return self

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the node serves. Raises NodeFailedError if it ends or takes too long."""
        await_all_ready([self], timeout_s)

    def serves(self, timeout_s: float = 1.0) -> bool:
        """Whether the node answers a request now."""
        try:
            address = (self.plan.host, self.plan.port or self.plan.controller_port)
            with socket.create_connection(address, timeout_s) as sock:
                sock.settimeout(timeout_s)
                sock.sendall(_ARE_YOU_THERE)
                return bool(sock.recv(1))
        except OSError:
            return False

    def stop(self) -> int:
        """Ask for a clean stop and wait for it; returns the exit code. Raises NodeFailedError."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """kill -9: no handler of the process runs."""
        return self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stop the node cleanly if it runs, and start it; returns when it serves. Raises NodeFailedError."""
        if self.running:
            self.stop()
        return self.start()

    def pause(self) -> None:
        """Let the process stand still; its sockets stay open, as those of a host that hangs."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Resume a paused process."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def log_text(self) -> str:
        """All that the process has printed, over all its starts."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def last_words(self) -> str:
        """The last line of the process's output; empty if there is none."""
        return self.log_text().rstrip().rpartition("\n")[2].removeprefix("odradek: ")

    def failed(self, how: str) -> NodeFailedError:
        """The error for this node; `how` follows "node 1"."""
        return NodeFailedError(f"node {self.node_id} {how}", self.log_text()[-LOG_TAIL_CHARS:])

    def _end(self, how: signal.Signals) -> int:
        process = self.process
        assert process is not None, f"node {self.node_id} does not run"
        if self.paused and how is not signal.SIGKILL:
            self.resume()
        self.process = None
        process.send_signal(how)
        try:
            return process.wait(timeout=self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self.failed(f"did not stop in {self.stop_timeout_s:g} s") from None


def await_all_ready(nodes: Sequence[NodeProcess], timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait until all of these nodes serve.

    All are checked in turn, since nodes wait for one that has ended until their timeout.

    Raises:
        NodeFailedError: one has ended, or takes too long.
    """
    deadline = time.monotonic() + timeout_s
    waiting = list(nodes)
    while waiting:
        for node in nodes:
            if not node.running:
                raise node.failed(f"ended at start: {node.last_words()}")
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise waiting[0].failed(f"did not serve within {timeout_s:g} s")
        if waiting[0].serves(max(0.1, min(1.0, left_s))):
            del waiting[0]
        else:
            time.sleep(POLL_S)


class ProcessCluster:
    """A cluster of real processes on this machine. Use it with `with`, or call `start` and `stop`."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        controllers: int = 0,
        racks: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        first_port: int = 0,
        hosts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """See `plan_cluster`; formatting happens here. Raises ConfigError.

        Args:
            hosts: the address of each node, in order, and the command by which its processes get there.
        """
        launchers = dict(hosts or {})
        self.plans = plan_cluster(
            directory,
            brokers=brokers,
            controllers=controllers,
            racks=racks,
            settings=settings,
            first_port=first_port,
            hosts=tuple(launchers),
        )
        disk = RealDisk()
        try:
            self.cluster_id = format_cluster(disk, self.plans, now_ms=time.time_ns() // 1_000_000)
        finally:
            disk.close()
        self.nodes = {plan.node_id: NodeProcess(plan, launchers.get(plan.host, ())) for plan in self.plans}

    def __getitem__(self, node_id: int) -> NodeProcess:
        return self.nodes[node_id]

    @property
    def bootstrap_servers(self) -> str:
        """The value of bootstrap.servers for clients: all brokers."""
        return bootstrap_servers(self.plans)

    @property
    def brokers(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if node.plan.is_broker]

    @property
    def controllers(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if node.plan.controller_port]

    def start(self) -> Self:
        """Start all nodes concurrently, and wait until they serve.

        Raises:
            PortInUseError: a port of a node is in use; nothing is started.
            NodeFailedError: a node ends or takes too long; the others are killed.
        """
        self._check_ports()
        try:
            for node in self.nodes.values():
                node.launch()
            await_all_ready(list(self.nodes.values()))
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop all that runs, cleanly, and without handing leaders over to nodes that stop as well.

        Raises:
            NodeFailedError: a node did not stop in time, and was killed.
        """
        running = [node for node in self.nodes.values() if node.running]
        for node in running:
            if node.paused:
                node.resume()
            # At the second signal a node stops without waiting for the others.
            for _ in range(2):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(node.pid, signal.SIGTERM)
                time.sleep(BETWEEN_SIGNALS_S)
        failures = []
        for node in running:
            try:
                node.stop()
            except NodeFailedError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _check_ports(self) -> None:
        """Check the ports before the start: another process on a port would be taken for the node."""
        for node in self.nodes.values():
            for port in filter(None, (node.plan.port, node.plan.controller_port)):
                if _is_in_use(node.plan.host, port):
                    raise PortInUseError(f"port {port}, which node {node.node_id} needs, is taken")

    def kill(self) -> None:
        """kill -9 of all that runs."""
        for node in self.nodes.values():
            if node.running:
                node.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _is_in_use(host: str, port: int) -> bool:
    """Whether a process listens there; False for an address that is not of this machine, or of its network."""
    with socket.socket() as sock:
        sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the node does: what has just ended is no hindrance
        try:
            sock.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
