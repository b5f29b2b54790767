"""Encodes a lease for a TxnOffsetCommit request, for the administrator's client and the Spark connector."""

from __future__ import annotations

from odradek.client.output_lease.lease import OutputLease
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


def lease_offsets(lease: OutputLease) -> list[TxnOffsetCommitRequestTopic]:
    """The offsets to commit for a lease."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    metadata = lease.metadata()
    for (topic, index), offset in sorted(lease.covered.items()):
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
