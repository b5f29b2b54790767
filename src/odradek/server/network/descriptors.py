"""The division of the process's descriptors: some for logs, peers and the node itself, the rest for clients.

The system assigns the lowest free number. A socket with a number at or above `clients_below` means that clients hold
their whole share: it is refused, whatever else was opened and closed meanwhile, and nothing needs to be counted.
"""

from __future__ import annotations

from odradek.common.numbers import INT32_MAX
from odradek.log.files import MAX_OPEN_FILES

# Listeners, the event loop, pipes of the worker process, files that are open for an instant, connections to peers.
_OWN = 64
_MIN_OPEN_FILES = 16
# A node with more descriptors is one of a larger cluster, with more peers.
_MAX_FOR_PEERS = 1024
_SHARE = 8
_SHARE_FOR_PEERS = 16


class Descriptors:
    """The shares of a process's descriptors.

    Attributes:
        limit: of the process; None where there is none.
        open_files: how many files of logs stay open at a time.
        clients_below: the number that no descriptor of a client reaches.
    """

    __slots__ = ("clients_below", "limit", "open_files")

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.open_files = MAX_OPEN_FILES
        self.clients_below = INT32_MAX
        if limit is not None:
            self.open_files = min(MAX_OPEN_FILES, max(_MIN_OPEN_FILES, limit // _SHARE))
            kept = self.open_files + _OWN + min(_MAX_FOR_PEERS, limit // _SHARE_FOR_PEERS)
            self.clients_below = max(limit - kept, limit // 2)
