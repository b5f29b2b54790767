"""The control socket of a running `odradek up`, from the outside.

`up.json` in the cluster's directory has the port of the socket and its token; only its owner reads it.
One request and one answer, a line of JSON each, for every connection.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from odradek.common.errors import OdradekError

HOST = "127.0.0.1"
STATE_FILE = "up.json"
# A restart is answered when the node serves again.
ANSWER_TIMEOUT_S = 120.0


class NoClusterError(OdradekError):
    """No supervisor runs a cluster in this directory."""


class RefusedActionError(OdradekError):
    """The cluster runs, and the action is invalid in its present state."""


def request(directory: Path, action: str, node_id: int = -1) -> dict[str, Any]:
    """Send an action to the supervisor of the cluster in this directory, and return its response.

    Raises:
        NoClusterError: there is none.
        RefusedActionError: the action was refused; the text has the reason.
    """
    try:
        state = json.loads((directory / STATE_FILE).read_text())
        with socket.create_connection((HOST, int(state["port"])), timeout=5.0) as control:
            control.settimeout(ANSWER_TIMEOUT_S)
            message = {"token": state["token"], "action": action, "node": node_id}
            control.sendall(json.dumps(message).encode() + b"\n")
            answer: dict[str, Any] = json.loads(control.makefile("rb").readline())
    except (OSError, ValueError, KeyError):
        raise NoClusterError(f"no cluster runs in {directory}; start one with `odradek up`") from None
    if "error" in answer:
        raise RefusedActionError(str(answer["error"]))
    return answer
