"""Forgotten state of a coordinator, log lines that fit a line, and when it looks at the topics again."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.expressions import matcher
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.records import TransactionEndRecord
from odradek.coordinator.service import CREATION_POLL_S
from odradek.coordinator.transaction.state import TransactionState
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from tests.component.coordinator.test_group_service import Node, offsets_image
from tests.support.models.consumer_shard import Box, owned, pairs, view

REGEX: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}


def test_the_reason_of_a_bad_expression_is_cut(capfd: pytest.CaptureFixture[str]) -> None:
    expression = "(" + "a" * 1000
    with pytest.raises(ApiError) as refused:
        matcher(expression, "SubscribedTopicRegex")
    before, _, reason = refused.value.message.rpartition("expression: ")
    assert expression in before
    assert 20 < len(reason) <= 200 + len(".")
    assert capfd.readouterr().err == "", "the member hears of it, not the terminal of the broker"


def test_an_expression_has_so_many_bytes_at_most() -> None:
    assert matcher("a|" * 1023 + "bc", "it")("bc")
    for long in ("a|" * 1023 + "bcd", "\u00e9" * 1025):
        with pytest.raises(ApiError, match="it is longer than 2048 bytes"):
            matcher(long, "it")


def test_an_expression_has_so_many_steps_at_most() -> None:
    """Few bytes may ask for very many."""
    assert matcher("(ab){500}", "it")("ab" * 500)
    with pytest.raises(ApiError, match=r"it `.*` is too large") as caught:
        matcher("(abc){1000}", "it")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_unused_expressions_of_a_group_are_evicted() -> None:
    box = Box(view(ta=2, tb=3, xc=4))
    epoch = box.beat("a", box.beat("a", **REGEX).member_epoch).member_epoch
    box.topics = view(2, ta=2, tb=3, xc=5)
    box.beat("a", epoch)
    assert dict(box.group.matched_versions.items()) == {"t.*": 2}, "the same topics match: no record says so"
    box.beat("a", epoch, subscribed_topic_regex="x.", topic_partitions=[])
    assert "t.*" not in box.group.matched_versions


@pytest.mark.parametrize("replayed", [False, True])
def test_a_group_removes_the_state_of_a_member_that_left(replayed: bool) -> None:
    box = Box()
    held = pairs(box.beat("a"))
    box.beat("b")
    box.beat("a", 2, topic_partitions=owned(held))
    box.beat("b", -1)
    if replayed:
        box.restart()
    assert list(box.group.members) == list(box.group.current) == ["a"]
    assert set(box.group.owners.values()) == {"a"}


async def test_the_view_of_topics_is_rebuilt_when_topics_or_brokers_change() -> None:
    node = Node()
    first = node.service._present_topics()
    node.image = replace(node.image, offset=node.image.offset + 1)
    assert node.service._present_topics() is first
    node.image = replace(node.image, brokers=dict(node.image.brokers))
    second = node.service._present_topics()
    assert second is not first and second.version == first.version + 1
    node.image = replace(node.image, topics_by_name=dict(node.image.topics_by_name))
    assert node.service._present_topics().version == second.version + 1
    await node.service.close()


async def test_a_marker_waits_for_offsets_that_are_still_loaded() -> None:
    node = Node()
    node.log.readable.clear()
    node.service.on_elected(0, 0)
    end = TransactionEndRecord(7, True, 1, 0)
    with pytest.raises(ApiError) as refused:
        await node.service.end_transaction(0, end, 2)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ApiError) as elsewhere:
        await node.service.end_transaction(1, end, 2)
    assert elsewhere.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.log.readable.set()
    await node.service.close()


async def test_a_client_that_disconnects_before_a_refusal_leaves_no_error(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.service.on_elected(0, 0)
    await node.loaded()
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    node.image = replace(node.image, features={"group.version": 1})
    leave = ConsumerGroupHeartbeatRequest(group_id="g", member_id="unknown", member_epoch=-1)
    asking = asyncio.ensure_future(node.service.consumer_group_heartbeat(leave, Caller("client", "/h", 1)))
    await asyncio.sleep(0)
    asking.cancel()
    assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], asyncio.CancelledError)
    assert await node.commit(5, "another") == ErrorCode.NONE
    gc.collect()
    assert problems == [] and not caplog.records
    await node.service.close()


def test_transaction_states_have_kafkas_numbers_and_names() -> None:
    names = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert {state.label: state.value for state in TransactionState} == {name: at for at, name in enumerate(names)}


async def test_a_created_topic_is_waited_for_until_its_metadata_arrives() -> None:
    node = Node()
    made, node.image = node.image, MetadataImage()
    created = asyncio.Event()

    async def create() -> None:
        created.set()

    node.on_create = create
    found = asyncio.ensure_future(node.service.find_coordinator("g", "PLAINTEXT"))
    await created.wait()
    await asyncio.sleep(5 * CREATION_POLL_S)
    assert not found.done()
    node.image = made
    assert (await found)[0] == 1
    await node.service.close()


async def test_a_topic_is_created_once_for_all_and_again_after_a_refusal() -> None:
    node = Node()
    made, node.image = node.image, MetadataImage()
    created, may_end = asyncio.Event(), asyncio.Event()

    async def create() -> None:
        created.set()
        await may_end.wait()
        if len(node.created) == 1:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "not now")
        node.image = made

    node.on_create = create
    asking = [asyncio.ensure_future(node.service.find_coordinator(name, "PLAINTEXT")) for name in ("g", "h")]
    await created.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(node.created) == 1
    may_end.set()
    for refused in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(refused, ApiError) and "not now" in refused.message
    assert (await node.service.find_coordinator("g", "PLAINTEXT"))[0] == 1
    assert len(node.created) == 2
    node.image = offsets_image(leader=-1)
    with pytest.raises(ApiError, match="the coordinator is not available"):
        await node.service.find_coordinator("g", "PLAINTEXT")
    await node.service.close()


@pytest.mark.parametrize(("known", "says"), [(0, ""), (1, "1 is registered"), (2, "2 are registered"), (3, "")])
async def test_a_topic_that_needs_more_brokers_says_how_many(known: int, says: str) -> None:
    node = Node()
    node.service.topic = replace(node.service.topic, replication_factor=3)
    broker = node.image.brokers[1]
    node.image = MetadataImage(brokers={number: replace(broker, broker_id=number) for number in range(1, 1 + known)})
    text = f"__consumer_offsets needs 3 brokers, {says}; start more, or set offsets.topic.replication.factor={known}"
    assert node.service.lacks_brokers() == (text if says else "")
    await node.service.close()


async def test_a_group_without_a_name_takes_no_offsets_of_a_transaction() -> None:
    node = Node()
    node.service.on_elected(0, 1)
    await node.loaded()
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="", producer_id=5, producer_epoch=0)
    with pytest.raises(ApiError) as caught:
        await node.service.txn_offset_commit(request, None)
    assert caught.value.code is ErrorCode.INVALID_GROUP_ID
    await node.service.close()
