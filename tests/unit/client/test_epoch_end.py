"""An answer about leader epochs that is not of the partition that was asked for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from odradek.client.epochs import epoch_end
from odradek.common.errors import ProtocolError
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


class Answering:
    """A cluster that has one answer."""

    def __init__(self, *topics: tuple[str, list[int]]) -> None:
        self.response = OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic,
                    partitions=[EpochEndOffset(partition=each, leader_epoch=3, end_offset=9) for each in ids],
                )
                for topic, ids in topics
            ]
        )

    async def request(self, *_: object, **__: object) -> OffsetForLeaderEpochResponse:
        return self.response


async def test_the_end_of_an_epoch() -> None:
    assert await epoch_end(cast(Any, Answering(("t", [1]))), "t", 1, 5, leader_id=4) == (3, 9)


@pytest.mark.parametrize("answer", [Answering(), Answering(("t", [])), Answering(("t", [0])), Answering(("u", [1]))])
async def test_a_response_for_another_partition_is_an_error(answer: Any) -> None:
    with pytest.raises(ProtocolError, match="t-1"):
        await epoch_end(answer, "t", 1, 5, leader_id=4)
