"""The most entries of one request: an operation of the active controller must not grow with what a client sends.

Entries are counted before anything is decided: the settings of all resources, the partitions of all topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message

# Kafka's limit on the records of one operation (QuorumController.MAX_RECORDS_PER_USER_OP).
MAX_ENTRIES_PER_REQUEST = 10_000
# How many entries are decided in one step of an operation, some 15 to 80 us each.
ENTRIES_PER_STEP = 200


def check_size(request: Message) -> None:
    """Refuse a request of one of the APIs in `PARTS` as a whole if it has too many entries; others always pass.

    Kafka counts records, some of which it makes only after thousands of decisions; and where it handles the entries of
    a request one by one (DeleteTopics, CreatePartitions, AlterPartitionReassignments), it answers the ones above the
    limit with UNKNOWN_SERVER_ERROR. Here nothing of such a request is done. The records that a request without entries
    makes (ElectLeaders of all partitions), and the ACLs that the filters of DeleteAcls match, are counted by their
    operations. Sources: Kafka BoundedList, EventHandlerExceptionInfo, AclControlManager.

    Raises:
        ApiError: POLICY_VIOLATION, more than `MAX_ENTRIES_PER_REQUEST` entries.
    """
    parts_of = None if request.KEY is None else PARTS.get(request.KEY)
    if parts_of is None:
        return
    listed = parts_of(request)
    # The outer lists are looked at first: a million resources are not counted one by one.
    check_count(sum(len(parts) for parts, _ in listed))
    check_count(sum(len(getattr(part, inner)) for parts, inner in listed if inner for part in parts))


def check_count(count: int) -> None:
    """
    Raises:
        ApiError: POLICY_VIOLATION, as `check_size`.
    """
    if count > MAX_ENTRIES_PER_REQUEST:
        raise too_large()


def too_large() -> ApiError:
    """The refusal of a whole request."""
    return ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


Parts = Sequence[tuple[Collection[Any], str]]
# The lists of a request, which are counted together, each with the field of its elements that is a list itself; "" for
# none.
PARTS: Mapping[int, Callable[[Any], Parts]] = {
    ApiKey.ALTER_CONFIGS: lambda request: [(request.resources, "configs")],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request: [(request.resources, "configs")],
    ApiKey.ALTER_CLIENT_QUOTAS: lambda request: [(request.entries, "ops")],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda request: [(request.deletions, ""), (request.upsertions, "")],
    ApiKey.CREATE_TOPICS: lambda request: [(request.topics, "configs")],
    ApiKey.CREATE_PARTITIONS: lambda request: [(request.topics, "")],
    ApiKey.DELETE_TOPICS: lambda request: [(request.topics, ""), (request.topic_names, "")],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda request: [(request.topics, "partitions")],
    ApiKey.ELECT_LEADERS: lambda request: [(request.topic_partitions or (), "partitions")],
    ApiKey.CREATE_ACLS: lambda request: [(request.creations, "")],
    ApiKey.DELETE_ACLS: lambda request: [(request.filters, "")],
}
