"""`odradek drain --process`: drain the broker of this machine, for hooks that run before its process stops.

It needs no client of the cluster and no right: a signal, and the node's own probe.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
import urllib.error
import urllib.request
from typing import Any

from odradek.cli.errors import BAD_CONFIG, FAILED, USAGE, CliError

POLL_S = 0.1
ANSWER_S = 5.0
# The node is on this machine: a proxy of the environment would not reach it.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def drain_process(pid: int, probes: str, timeout_s: int) -> dict[str, Any]:
    """Send SIGUSR1 to the broker's process and wait until `/drained` succeeds; returns its content.

    Args:
        pid: of the broker's process.
        probes: HOST:PORT of its `odradek.metrics.listener`.
        timeout_s: how long to wait.

    Raises:
        CliError: there is no such process, no probe answers, or others do not take over in time.
    """
    deadline = time.monotonic() + timeout_s
    said = _request_state(probes, deadline)
    if said.get("drained"):  # a controller, or a broker that drains already
        return said
    _signal(pid)
    while not (said := _request_state(probes, deadline)).get("drained"):
        if time.monotonic() > deadline:
            left = f"still leads {said.get('movable')} partitions that others could lead"
            raise CliError(f"the broker of process {pid} {left}", code=FAILED)
        time.sleep(POLL_S)
    return said


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGUSR1)
    except ProcessLookupError:
        raise CliError(f"--process {pid}: there is no such process", code=USAGE) from None
    except PermissionError:
        raise CliError(f"--process {pid}: it belongs to another user", code=USAGE) from None


def _request_state(probes: str, deadline: float) -> dict[str, Any]:
    """The response of `/drained`. A node that is starting responds soon."""
    while True:
        try:
            return _get(f"http://{probes}/drained")
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() > deadline:
                note = "is odradek.metrics.listener set, and --probes its address?"
                reason = getattr(error, "reason", None) or error
                raise CliError(f"{probes}/drained: {_one_line(reason)}; {note}", code=BAD_CONFIG) from None
        time.sleep(POLL_S)


def _one_line(reason: object) -> str:
    """Without the number of an error of the system."""
    return getattr(reason, "strerror", None) or str(reason)


def _get(url: str) -> dict[str, Any]:
    try:
        with _DIRECT.open(url, timeout=ANSWER_S) as page:
            body = page.read()
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        with error:
            body = error.read()
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
