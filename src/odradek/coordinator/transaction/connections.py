"""Which requests of a transactional id come late, over a connection that its client has given up.

In transactions of version 0 one epoch serves many, so a commit or an abort that a dead connection held back looks like
one of the transaction that is open by then (KAFKA-17754). A client may have several connections to its coordinator, and
use them for different requests, so their age alone says nothing. But where one was made after the last use of another,
and has brought the same kind of request since, it has taken that one's place.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

# A client has one or two; of one that is forgotten nothing is refused.
MAX_CONNECTIONS: Final = 4
NO_CONNECTION = -1


class Kind(IntEnum):
    """What a client may have a connection of its own for."""

    ADD = 0
    END = 1


class Arrival(NamedTuple):
    """The connection that brought a request, and the newest that the node had then; numbers rise with time."""

    connection: int
    newest: int


class UsedConnections:
    """The connections of one producer under one epoch."""

    __slots__ = ("_last", "_uses")

    def __init__(self) -> None:
        # In the order of their last uses.
        self._uses: tuple[Arrival, ...] = ()
        self._last = (NO_CONNECTION, NO_CONNECTION)

    def is_late(self, kind: Kind, arrival: Arrival) -> bool:
        """Whether another connection has taken the place of the one that brought a request."""
        return any(self._last[kind] > use.newest for use in self._uses if use.connection == arrival.connection)

    def used(self, kind: Kind, arrival: Arrival) -> None:
        """A request that is not late was brought."""
        others = [use for use in self._uses if use.connection != arrival.connection]
        self._uses = (*others[1 - MAX_CONNECTIONS :], arrival)
        add, end = self._last
        self._last = (arrival.connection, end) if kind is Kind.ADD else (add, arrival.connection)
