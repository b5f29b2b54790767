"""The follower's half of an incremental fetch session (KIP-227): requests have only changed partitions.

Pure. The leader's half is `server.fetch_session_cache`. A session begins with a full request. The leader may refuse a
session (session id 0), and then every request is full. After a lost response or a session error the two sides may have
different states: the next request is full, and ends the old session.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.common.numbers import INT32_MAX
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

NO_SESSION = 0
INITIAL_EPOCH = 0
MAX_EPOCH = INT32_MAX

# Topics have ids (KIP-516), so that a recreated topic is another one.
PartitionKey = tuple[UUID, int]


class FetchSessionHandler:
    """The expected state of the session at the leader."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._held: set[PartitionKey] = set()

    @property
    def is_kept(self) -> bool:
        """Whether the leader keeps a session, so that a request may be sent before the last one is answered."""
        return self.session_id != NO_SESSION and self.epoch != INITIAL_EPOCH

    @property
    def is_full_next(self) -> bool:
        """Whether the next request must name every partition."""
        return self.epoch == INITIAL_EPOCH

    def fill(
        self, request: FetchRequest, named: Iterable[tuple[PartitionKey, FetchPartition]], gone: Iterable[PartitionKey]
    ) -> None:
        """Add partitions to a request.

        Args:
            named: all partitions if `is_full_next`, else the new or changed ones.
            gone: partitions that are no longer fetched; those that the session does not have are skipped.
        """
        request.session_id, request.session_epoch = self.session_id, self.epoch
        full = self.is_full_next
        if full:
            self._held = set()
        topics: dict[UUID, FetchTopic] = {}
        for (topic_id, partition_id), wanted in named:
            topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
            topic.partitions.append(wanted)
            self._held.add((topic_id, partition_id))
        request.topics = list(topics.values())
        forgotten: dict[UUID, ForgottenTopic] = {}
        for key in gone:
            if key in self._held:
                self._held.discard(key)
                forgotten.setdefault(key[0], ForgottenTopic(topic_id=key[0])).partitions.append(key[1])
        request.forgotten_topics_data = list(forgotten.values())
        if not full:
            self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def handle_response(self, error_code: int, session_id: int) -> bool:
        """Apply the head of a response; returns whether the answer has partitions to read."""
        if error_code:
            self.reset(forgotten=error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if session_id == NO_SESSION:
            # The leader keeps no session, or dropped one that had become empty.
            self.reset(forgotten=True)
        elif self.is_full_next:
            self.session_id, self.epoch = session_id, 1
        return True

    def reset(self, *, forgotten: bool = False) -> None:
        """Start a new session with the next request; `forgotten`: the leader has no session to end."""
        self.epoch = INITIAL_EPOCH
        if forgotten:
            self.session_id = NO_SESSION
