"""Detects late requests of a transactional id: those of a connection that its client has replaced.

Transactions of version 0 share one epoch, so a delayed commit or abort of a closed connection looks like one of the
transaction that is open by then (KAFKA-17754). A client may use several connections to its coordinator for different
requests, so age alone proves nothing. But a connection is replaced if the client opened another one after its last use,
and has since sent the same kind of request over that one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

# A client has one or two. Requests of a connection that is no longer in the list are never refused.
MAX_CONNECTIONS: Final = 4
NO_CONNECTION = -1


class Kind(IntEnum):
    """The kinds of requests for which a client may use separate connections."""

    ADD = 0
    END = 1


class Arrival(NamedTuple):
    """The number of a request's connection, and of the node's newest connection at that time; numbers rise."""

    connection: int
    newest: int


class UsedConnections:
    """The connections that one producer has used in one epoch."""

    __slots__ = ("_last", "_uses")

    def __init__(self) -> None:
        # In the order of their last uses.
        self._uses: tuple[Arrival, ...] = ()
        self._last = (NO_CONNECTION, NO_CONNECTION)

    def is_late(self, kind: Kind, arrival: Arrival) -> bool:
        """Whether a newer connection has replaced the one of a request."""
        return any(self._last[kind] > use.newest for use in self._uses if use.connection == arrival.connection)

    def used(self, kind: Kind, arrival: Arrival) -> None:
        """Record the connection of a request that is not late."""
        others = [use for use in self._uses if use.connection != arrival.connection]
        self._uses = (*others[1 - MAX_CONNECTIONS :], arrival)
        add, end = self._last
        self._last = (arrival.connection, end) if kind is Kind.ADD else (add, arrival.connection)
