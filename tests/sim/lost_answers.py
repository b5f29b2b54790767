"""Responses that are lost though their requests were carried out: of APIs that the seed chooses, on any connection.

The sender does not know then whether its request had an effect, and sends it again. There are two causes. The
connection ends instead of the response (`AnswerScan`, for clients and nodes alike), so that the next request goes over
a new one. Or the response is too late for a client that has a timeout for each request and keeps the connection, as
librdkafka does (`LostAnswerError`, which simulated clients raise).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random

from odradek.client.connection import RequestTimeoutError
from odradek.protocol.api_key import ApiKey

# APIs that change state, or whose responses the next request depends on; a lost read is only repeated.
OF_GROUPS = (
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
)
OF_PRODUCERS = (
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
)
OF_CONTROLLERS = (
    ApiKey.ENVELOPE,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
APIS = (*OF_GROUPS, *OF_PRODUCERS, *OF_CONTROLLERS)
# The share of these APIs that a seed uses.
CHOSEN = 0.4
# Size, API key, version, correlation id; and size, correlation id.
_REQUEST, _RESPONSE = struct.Struct(">ihhi"), struct.Struct(">ii")
_SIZE_BYTES = 4


class LostAnswerError(RequestTimeoutError):
    """The answer came after the request had timed out; the connection goes on."""


def choose(random: Random) -> tuple[str, ...]:
    """The names of the APIs whose answers a seed may lose."""
    return tuple(key.name for key in APIS if random.random() < CHOSEN)


class _Heads:
    """The first bytes of each frame of a stream that comes in pieces."""

    def __init__(self, head: struct.Struct) -> None:
        self._struct = head
        self._head = bytearray()
        self._left_bytes = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(where it begins, its fields) for each head that ends in this piece; 0 where it began in one before."""
        at = 0
        while at < len(data):
            passed = min(self._left_bytes, len(data) - at)
            self._left_bytes -= passed
            at += passed
            wanted = data[at : at + self._struct.size - len(self._head)]
            self._head += wanted
            at += len(wanted)
            if len(self._head) == self._struct.size:
                fields = self._struct.unpack(self._head)
                self._head.clear()
                self._left_bytes = fields[0] + _SIZE_BYTES - self._struct.size
                yield max(0, at - self._struct.size), fields


class AnswerScan:
    """Tracks the responses that a connection has yet to deliver to the client."""

    def __init__(self, loses: Callable[[ApiKey], bool]) -> None:
        """`loses` draws whether the answer of an API is lost."""
        self._loses = loses
        self._requests, self._answers = _Heads(_REQUEST), _Heads(_RESPONSE)
        self._asked: dict[int, ApiKey] = {}

    def asked(self, data: bytes) -> None:
        """This end sends these bytes."""
        for _, (_, key, _, correlation_id) in self._requests.feed(data):
            self._asked[correlation_id] = ApiKey(key)

    def lost_at(self, data: bytes) -> int | None:
        """The number of received bytes before the first response that is lost; None if none is."""
        for at, (_, correlation_id) in self._answers.feed(data):
            key = self._asked.pop(correlation_id, None)
            if key is not None and self._loses(key):
                return at
        return None
