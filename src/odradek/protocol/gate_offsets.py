"""A gate as the part of a TxnOffsetCommit request; the administrator's client and the Spark connector both send it."""

from __future__ import annotations

from odradek.common.gates import Gate
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


def gate_offsets(gate: Gate) -> list[TxnOffsetCommitRequestTopic]:
    """What is committed for a gate."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    metadata = gate.metadata()
    for (topic, index), offset in sorted(gate.covered.items()):
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()]
