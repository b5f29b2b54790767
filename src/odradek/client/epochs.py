"""The end offsets of leader epochs of a partition (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client.cluster import check
from odradek.common.errors import ProtocolError
from odradek.protocol.messages import offset_for_leader_epoch_request as asked
from odradek.protocol.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster


async def epoch_end(
    cluster: Cluster, topic: str, partition_id: int, epoch: int, *, leader_id: int, leader_epoch: int = -1
) -> tuple[int, int]:
    """The (largest epoch not above `epoch`, its end offset, exclusive); (-1, -1) if the leader has none.

    Args:
        leader_epoch: the epoch in which `leader_id` should lead; -1 for any.
    Raises:
        ApiError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, TOPIC_AUTHORIZATION_FAILED.
        ProtocolError: the response has other partitions.
    """
    partition = asked.OffsetForLeaderPartition(
        partition=partition_id, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    request = asked.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[asked.OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    response = await cluster.request(request, OffsetForLeaderEpochResponse, node_id=leader_id)
    answers = [(each.topic, found.partition, found) for each in response.topics for found in each.partitions]
    if [each[:2] for each in answers] != [(topic, partition_id)]:
        raise ProtocolError(f"broker {leader_id} does not answer for the leader epochs of {topic}-{partition_id}")
    answer = answers[0][2]
    check(answer.error_code, f"{topic}-{partition_id}")
    return answer.leader_epoch, answer.end_offset
