"""A consumer group refuses invalid requests of its classic members, and of static members of either protocol."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.timers import TimerKey
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from tests.support.models.consumer_shard import Box, refused
from tests.support.models.mixed_groups import (
    GROUP,
    ClassicClient,
    MixedShard,
    NewClient,
    subscription_bytes,
    topics_view,
)


class Mixed:
    """A consumer group of one member of each protocol; the classic one is static, as `one`."""

    def __init__(self) -> None:
        self.shard = MixedShard(topics_view(ta=4))
        self.classic = ClassicClient(self.shard, "c", ["ta"], instance_id="one")
        self.new = NewClient(self.shard, "n", ["ta"], instance_id="two")
        for _ in range(8):
            self.classic.settle()
            self.new.settle()
            self.shard.advance(200)
        assert self.shard.kind == "consumer"

    def answered(self, operation: Any, ticket: int = 0) -> ErrorCode:
        written = len(self.shard.log)
        try:
            answer = self.shard.apply(operation)
        except ApiError as error:
            code = error.code
        else:
            code = ErrorCode((answer or self.shard.answers[ticket]).error_code)
        assert code is ErrorCode.NONE or len(self.shard.log) == written, "what is refused changes nothing"
        return code

    def join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        protocol: str = "range",
        kind: str = "consumer",
        metadata: bytes | None = None,
    ) -> ErrorCode:
        data = subscription_bytes(["ta"]) if metadata is None else metadata
        request = JoinGroupRequest(
            group_id=GROUP, member_id=member_id, group_instance_id=instance_id, session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000, protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=data)],
        )  # fmt: skip
        self.shard.ticket += 1
        caller = Caller("x", "/127.0.0.1", 3, self.shard.ticket, "id")
        try:
            return self.answered(self.shard.machine.join(request, caller, self.shard.now), self.shard.ticket)
        except ApiError as error:
            return error.code

    def beat(self, member_id: str, instance_id: str | None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP, member_id=member_id, generation_id=self.classic.generation_id, group_instance_id=instance_id
        )
        try:
            self.shard.apply(self.shard.machine.classic_heartbeat(request, self.shard.now))
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def sync(self, instance_id: str | None, protocol: str = "range", kind: str = "consumer") -> ErrorCode:
        request = SyncGroupRequest(
            group_id=GROUP, member_id=self.classic.member_id, generation_id=self.classic.generation_id,
            group_instance_id=instance_id, protocol_type=kind, protocol_name=protocol,
        )  # fmt: skip
        self.shard.ticket += 1
        caller = Caller("x", "/127.0.0.1", 5, self.shard.ticket, "")
        try:
            return self.answered(self.shard.machine.sync(request, caller, self.shard.now), self.shard.ticket)
        except ApiError as error:
            return error.code


@pytest.fixture
def mixed() -> Mixed:
    return Mixed()


def test_a_classic_member_must_share_a_protocol_with_the_other_ones(mixed: Mixed) -> None:
    assert mixed.join(protocol="another") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert mixed.join(kind="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert mixed.join() is ErrorCode.NONE


def test_a_classic_member_must_say_what_it_subscribes_to(mixed: Mixed) -> None:
    assert mixed.join(metadata=b"nonsense") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_syncs_by_the_protocol_that_it_joined_with(mixed: Mixed) -> None:
    assert mixed.sync("one", protocol="another") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert mixed.sync("one", kind="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("instance_id", ["unknown", "two"])
def test_a_classic_member_speaks_for_its_own_instance_alone(mixed: Mixed, instance_id: str) -> None:
    code = ErrorCode.UNKNOWN_MEMBER_ID if instance_id == "unknown" else ErrorCode.FENCED_INSTANCE_ID
    member_id = mixed.classic.member_id
    assert mixed.join(member_id, instance_id) is code
    assert mixed.beat(member_id, instance_id) is code
    assert mixed.sync(instance_id) is code
    assert mixed.beat(member_id, "one") is not code


@pytest.mark.parametrize("instance_id", ["unknown", "two"])
def test_a_consumer_speaks_for_its_own_instance_alone(instance_id: str) -> None:
    box = Box()
    box.beat("a", instance_id="one")
    box.beat("b", instance_id="two")
    code = ErrorCode.UNKNOWN_MEMBER_ID if instance_id == "unknown" else ErrorCode.FENCED_INSTANCE_ID
    for epoch in (1, -1, -2):
        refused(code, box, "a", epoch=epoch, instance_id=instance_id)


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_a_member_in_an_epoch_that_is_not_its_own_is_fenced(instance_id: str | None) -> None:
    box = Box()
    epoch = box.beat("a", instance_id=instance_id).member_epoch
    for other in (epoch - 1, epoch + 1):
        refused(ErrorCode.FENCED_MEMBER_EPOCH, box, "a", epoch=other or 9, instance_id=instance_id)
    assert box.beat("a", epoch, instance_id=instance_id).member_epoch == epoch


def test_no_deadline_of_a_rebalance_is_left_of_a_group_that_was_converted() -> None:
    """A classic group of that name, made later, would have its first rebalance cut short."""
    shard = MixedShard(topics_view(ta=4))
    classic, new = ClassicClient(shard, "c", ["ta"]), NewClient(shard, "n", ["ta"])
    for _ in range(2):
        classic.settle()
    new.settle()
    assert shard.kind == "consumer"
    assert [kind for kind in ("join", "sync") if shard.machine.timers.get(TimerKey(kind, GROUP)) is not None] == []
