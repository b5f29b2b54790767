"""Responses that are encoded in steps."""

from __future__ import annotations

import pytest

from odradek.protocol.declare import Message
from odradek.protocol.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.server.network.long_messages import IN_STEPS_ELEMENTS, is_long


def offsets(*counts: int) -> Message:
    """The response of so many partitions for each of the topics."""
    partitions = ListOffsetsPartitionResponse(partition_index=0)
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name="t", partitions=[partitions] * count) for count in counts]
    )


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (HeartbeatResponse(), False),
        (offsets(), False),
        (offsets(IN_STEPS_ELEMENTS - 1), False),
        (offsets(IN_STEPS_ELEMENTS), True),
        (offsets(*[1] * (IN_STEPS_ELEMENTS // 2)), False),
        (offsets(*[1] * (IN_STEPS_ELEMENTS // 2), 1), True),
        (offsets(*[0] * (IN_STEPS_ELEMENTS + 1)), True),
        (CreateTopicsResponse(topics=[CreatableTopicResult(name="t", configs=None)]), False),
        (
            CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(name="t", configs=None),
                    CreatableTopicResult(name="t", configs=[CreatableTopicConfigs(name="k")] * IN_STEPS_ELEMENTS),
                ]
            ),
            True,
        ),
    ],
)
def test_responses_are_long_by_the_elements_of_their_lists(response: Message, expected: bool) -> None:
    assert is_long(response) is expected
