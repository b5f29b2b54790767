"""A supervised cluster of processes, with a control socket on which another process can request faults."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from odradek.testing.control_socket import HOST, STATE_FILE, RefusedActionError
from odradek.testing.processes import NodeFailedError, NodeProcess, ProcessCluster

MAX_REQUEST_BYTES = 4096
EVENTS_KEPT = 8


class Supervisor:
    """Starts a cluster, detects nodes that end, and handles requests on the control socket."""

    def __init__(self, cluster: ProcessCluster, directory: Path, on_event: Callable[[str], None]) -> None:
        """`on_event` gets a line for each event."""
        self.cluster = cluster
        self.events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._directory = directory
        self._on_event = on_event
        self._token = secrets.token_hex(16)
        self._control: socket.socket | None = None
        self._expected: dict[int, bool] = dict.fromkeys(cluster.nodes, False)

    def start(self) -> None:
        """Start all nodes and open the control socket.

        Raises:
            NodeFailedError, PortInUseError: as `ProcessCluster.start`.
            OSError: the control socket cannot be opened.
        """
        self.cluster.start()
        self._expected = dict.fromkeys(self.cluster.nodes, True)
        self._control = socket.create_server((HOST, 0))
        state = {"port": self._control.getsockname()[1], "token": self._token, "pid": os.getpid()}
        path = self._directory / STATE_FILE
        path.unlink(missing_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(state).encode())
        finally:
            os.close(fd)

    def stop(self) -> None:
        """Close the control socket and stop all nodes cleanly. Raises NodeFailedError."""
        if self._control is not None:
            self._control.close()
            (self._directory / STATE_FILE).unlink(missing_ok=True)
        self._expected = dict.fromkeys(self.cluster.nodes, False)
        self.cluster.stop()

    def wait(self, timeout_s: float) -> None:
        """Handle requests within that time, and check whether all nodes run."""
        assert self._control is not None, "start() comes first"
        self._control.settimeout(timeout_s)
        try:
            connection, _ = self._control.accept()
        except TimeoutError:
            pass
        else:
            with connection, contextlib.suppress(OSError):
                connection.settimeout(1.0)
                answer = self._answer(connection.makefile("rb").readline(MAX_REQUEST_BYTES))
                connection.sendall(json.dumps(answer).encode() + b"\n")
        for node_id, node in self.cluster.nodes.items():
            if self._expected[node_id] and not node.running:
                self._expected[node_id] = False
                self._notify(f"node {node_id} ended by itself: {node.last_words()}")

    def describe(self) -> list[dict[str, Any]]:
        """The nodes as they are now."""
        return [
            {
                "node": node.node_id,
                "roles": ",".join(node.plan.roles),
                "rack": node.plan.rack or None,
                "address": node.bootstrap if node.plan.port else f"{HOST}:{node.plan.controller_port}",
                "state": _state(node),
                "pid": node.pid if node.running else None,
                "memory_bytes": _memory_bytes(node),
            }
            for node in self.cluster.nodes.values()
        ]

    def act(self, action: str, node_id: int) -> str:
        """Perform an action on a node; returns a description.

        Raises:
            RefusedActionError: there is no such node or action, or it is invalid in the node's state.
            NodeFailedError: the node did not start or stop.
        """
        node = self.cluster.nodes.get(node_id)
        if node is None:
            raise RefusedActionError(
                f"there is no node {node_id}; the nodes are {', '.join(map(str, self.cluster.nodes))}"
            )
        if action != "restart" and not node.running:
            raise RefusedActionError(f"node {node_id} does not run; start it with `odradek up restart {node_id}`")
        if action == "kill":
            self._expected[node_id] = False
            node.kill()
            done = f"node {node_id} was killed with -9"
        elif action == "pause":
            node.pause()
            done = f"node {node_id} is paused"
        elif action == "resume":
            node.resume()
            done = f"node {node_id} goes on"
        elif action == "restart":
            self._expected[node_id] = False
            began = time.monotonic()
            node.restart()
            self._expected[node_id] = True
            done = f"node {node_id} serves again after {time.monotonic() - began:.1f} s"
        else:
            raise RefusedActionError(f"there is no action {action}")
        self._notify(done)
        return done

    def _answer(self, line: bytes) -> Mapping[str, Any]:
        try:
            asked = json.loads(line)
            token, action, node_id = str(asked["token"]), str(asked["action"]), int(asked["node"])
        except (ValueError, KeyError, TypeError):
            return {"error": "the request cannot be read"}
        if not secrets.compare_digest(token, self._token):
            return {"error": "the token is wrong"}
        if action == "status":
            return {"nodes": self.describe()}
        try:
            return {"done": self.act(action, node_id)}
        except (RefusedActionError, NodeFailedError) as error:
            return {"error": str(error)}

    def _notify(self, event: str) -> None:
        self.events.append(f"{time.strftime('%H:%M:%S')} {event}")
        self._on_event(event)


def _state(node: NodeProcess) -> str:
    if not node.running:
        return "down"
    return "paused" if node.paused else "up"


def _memory_bytes(node: NodeProcess) -> int | None:
    """Resident memory, where the system reports it."""
    if not node.running:
        return None
    try:
        pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
