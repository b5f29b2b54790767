"""The follower's half of an incremental fetch session (KIP-227): names only what has changed since the last request.

Pure. The leader's half is `server.fetch_session_cache`. A session begins with a full request; the leader may refuse
to keep one (session id 0), and then every request is a full one. A request whose answer never came, or came as a
session error, leaves both sides with different views: the next one is full, and ends the old session.
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

# Topics are named by id (KIP-516), so that a topic that was deleted and made again is another one.
PartitionKey = tuple[UUID, int]


class FetchSessionHandler:
    """What the leader holds in our session, as far as we know."""

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
        """Put into a request what it has to say.

        Args:
            named: all partitions where `is_full_next`, else those that are new or asked for again.
            gone: partitions that are not to be fetched; those that the session does not hold are passed over.
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
        """Take the head of an answer; returns whether the answer has partitions to read."""
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
