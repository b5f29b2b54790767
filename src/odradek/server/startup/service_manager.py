"""Notifies systemd of the state of a process."""

from __future__ import annotations

import contextlib
import os
import socket


def notify_manager(state: str) -> None:
    """Notify systemd that the node serves or ends, if the unit has `Type=notify`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    name = "\0" + address[1:] if address.startswith("@") else address  # a name without a file
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(state.encode(), name)
