"""The fetch session of a link with one broker of its source (KIP-227): requests have only changed partitions.

Pure. Without sessions a mirror would send all its idle partitions twice a second, between data centres.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest
from odradek.replica.fetch_session_handler import FetchSessionHandler

if TYPE_CHECKING:
    from odradek.link.mirroring import MirroredPartition
    from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData

Key = tuple[UUID, int]
Place = tuple[int, int, int]
_OVER = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class SourceSession:
    """The session with one broker of the source. One request is in flight at a time."""

    def __init__(self) -> None:
        self._session = FetchSessionHandler()
        self._sent: dict[Key, Place] = {}
        self._asked: dict[Key, tuple[MirroredPartition, int]] = {}
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}
        self._was_full = True

    def fill(self, request: FetchRequest, some: Sequence[MirroredPartition]) -> None:
        """Add the fetches of these partitions to a request, and remove all others from the session."""
        self._was_full = self._session.is_full_next
        if self._was_full:
            self._sent = {}
        names = {each.topic_id: each.source_topic for each in some}
        self._ids = {name: topic_id for topic_id, name in names.items()}
        self._asked = {}
        named: list[tuple[Key, FetchPartition]] = []
        for each in some:
            key, asked = (each.topic_id, each.partition.partition_id), each.fetch_partition()
            place = asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch
            if each.reason.text or self._sent.get(key) != place:
                self._sent[key] = place
                named.append((key, asked))
            self._asked[key] = each, asked.fetch_offset
        gone = [key for key in self._sent if key not in self._asked]
        known = names | {key[0]: self._names[key[0]] for key in gone if key[0] in self._names}
        for key in gone:
            del self._sent[key]
        self._names = known
        self._session.fill(request, named, gone)
        # Sources before Kafka 3.1 know topics by name.
        for topic in request.topics:
            topic.topic = known[topic.topic_id]
        for forgotten in request.forgotten_topics_data:
            forgotten.topic = known.get(forgotten.topic_id, "")

    def is_over(self, response: FetchResponse) -> bool:
        """Whether the response only ends the session, so that the next request begins a new one."""
        is_over = response.error_code in _OVER and not self._was_full
        self._session.handle_response(response.error_code, response.session_id)
        return is_over

    def answers(self, response: FetchResponse) -> Iterator[tuple[MirroredPartition, int, PartitionData | None]]:
        """Each requested partition, its fetch offset, and its response; None if it has not changed."""
        found = {
            (topic.topic_id if topic.topic_id.int else self._ids.get(topic.topic), data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }
        for key, (mirrored, offset) in self._asked.items():
            yield mirrored, offset, found.get(key)
