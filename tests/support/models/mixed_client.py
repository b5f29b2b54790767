"""A conversation about groups with members of both protocols, as lines: the same on Apache Kafka and on us.

Members are driven over the wire, one request after the other, so that a line depends on those before it alone. Epochs
are shown as they are: both count from the generation that the classic group had.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from tests.support.models.group_client import GroupClient, Lines
from tests.support.models.mixed_groups import assignment_bytes, subscription_bytes

ALL = frozenset({("topic", 0), ("topic", 1)})
NONE: frozenset[tuple[str, int]] = frozenset()


class MixedGroupClient(GroupClient):
    """Members of the consumer protocol are shown by the names that they give themselves."""

    def beat(
        self, what: str, group: str, member: str, epoch: int, owned: list[int] | None = None, **settings: Any
    ) -> int:
        """One ConsumerGroupHeartbeat; returns the member's epoch."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, instance_id=settings.get("instance")
        )
        if epoch == 0:
            request.rebalance_timeout_ms, request.topic_partitions = 120_000, []
            request.subscribed_topic_names = settings.get("topics", ["topic"])
        elif owned is not None:
            request.topic_partitions = [TopicPartitions(topic_id=self.topic_id, partitions=owned)] if owned else []
        answer = self.wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        parts = None
        if answer.assignment is not None:
            parts = sorted(p for topic in answer.assignment.topic_partitions for p in topic.partitions)
        self.add(what, "ConsumerGroupHeartbeat", ErrorCode(answer.error_code).name, answer.member_epoch, parts)
        return int(answer.member_epoch)

    def subscribe(
        self,
        what: str,
        group: str,
        member: str = "",
        owned: frozenset[tuple[str, int]] = NONE,
        **settings: Any,
    ) -> JoinGroupResponse:
        """One JoinGroup 9 of a consumer; with a new id it comes back by itself."""
        request = JoinGroupRequest(
            group_id=group,
            member_id=member,
            session_timeout_ms=120_000,
            rebalance_timeout_ms=120_000,
            group_instance_id=settings.get("instance"),
            protocol_type=settings.get("protocol_type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(
                    name=name, metadata=settings.get("metadata", subscription_bytes(["topic"], owned))
                )
                for name in settings.get("protocols", ["range"])
            ],
        )
        answer: JoinGroupResponse = self.wire.request(ApiKey.JOIN_GROUP, 9, request)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.add(what, "JoinGroup", "MEMBER_ID_REQUIRED")
            return self.subscribe(what, group, answer.member_id, owned, **settings)
        self.add(
            what, "JoinGroup", ErrorCode(answer.error_code).name, answer.generation_id, answer.protocol_type,
            answer.protocol_name, "leads" if answer.leader == answer.member_id else f"leader {answer.leader!r}",
            len(answer.members), answer.skip_assignment,
        )  # fmt: skip
        return answer

    def describe_consumers(self, what: str, group: str) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[group])
        found = self.wire.request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups[0]
        members = sorted(
            (
                each.instance_id,
                each.member_epoch,
                each.member_type,
                each.subscribed_topic_names,
                sorted(p for topic in each.assignment.topic_partitions for p in topic.partitions),
                sorted(p for topic in each.target_assignment.topic_partitions for p in topic.partitions),
            )
            for each in found.members
        )
        self.add(
            what, "ConsumerGroupDescribe", ErrorCode(found.error_code).name, found.group_state, found.group_epoch,
            found.assignment_epoch, found.assignor_name, members,
        )  # fmt: skip


def record_mixed_groups(port: int) -> Lines:
    """All requests, and how one broker answers them."""
    client = MixedGroupClient(port)
    client.prepare()
    for part in (_up_and_down, _refused, _statics, _empty, _again):
        part(client)
    client.wire.close()
    return client.lines


def _up_and_down(client: MixedGroupClient) -> None:
    group = "rolled"
    classic = client.subscribe("first", group)
    old = classic.member_id
    client.sync("first", group, old, 1, assign=[old], assignment=assignment_bytes(ALL))
    client.commit("before", group, 1, member=old, generation=1)
    epoch = client.beat("new", group, "new", 0)
    client.describe("converted", group)
    client.describe_consumers("converted", group)
    client.list_groups("converted", 5, types=["consumer"])
    client.fetch("converted", group)
    client.beat("new waits", group, "new", epoch, [])
    client.heartbeat("must join", group, old, 1)
    client.commit("still a member", group, 2, member=old, generation=1, version=2)
    client.sync("must join", group, old, 1)
    again = client.subscribe("joins again", group, old, NONE)
    client.heartbeat("before sync", group, old, again.generation_id)
    client.sync("another generation", group, old, 1)
    client.sync("another protocol", group, old, again.generation_id, protocol_name="roundrobin")
    client.sync("another type", group, old, again.generation_id, protocol_type="connect")
    client.sync("converted", group, old, again.generation_id)
    client.heartbeat("converted", group, old, again.generation_id)
    client.beat("new gets", group, "new", epoch, [])
    client.describe_consumers("both", group)
    for version in (2, 8, 9):
        client.commit(f"classic {version}", group, 3, member=old, generation=again.generation_id, version=version)
        client.commit(f"stale {version}", group, 3, member=old, generation=again.generation_id - 1, version=version)
        client.commit(f"new {version}", group, 3, member="new", generation=epoch, version=version)
        client.commit(f"new, stale {version}", group, 3, member="new", generation=epoch - 1, version=version)
        client.commit(f"absent {version}", group, 3, version=version)
    client.heartbeat("of the other protocol", group, "new", epoch)
    client.sync("of the other protocol", group, "new", epoch)
    client.leave("absent", group, ("absent", None))
    client.delete_groups("not empty", group)
    client.delete_offset("subscribed", group)
    # Kafka makes a new target assignment once a second at most (KIP-1263).
    time.sleep(1.5)
    second = client.subscribe("second classic", group, protocols=["range", "roundrobin"])
    client.sync("second classic", group, second.member_id, second.generation_id)
    client.describe_consumers("three", group)
    client.leave("second classic", group, (second.member_id, None))
    time.sleep(1.5)
    client.heartbeat("after it", group, old, again.generation_id)
    third = client.subscribe("after it", group, old, NONE)
    client.sync("after it", group, old, third.generation_id)
    client.beat("after it", group, "new", epoch, [])
    client.beat("new leaves", group, "new", -1)
    client.describe_consumers("converted back", group)
    client.heartbeat("converted back", group, old, third.generation_id)
    last = client.subscribe("converted back", group, old, NONE)
    client.sync("converted back", group, old, last.generation_id, assign=[old], assignment=assignment_bytes(ALL))
    client.heartbeat("stable again", group, old, last.generation_id)
    client.fetch("offsets are kept", group)
    client.leave("last", group, (old, None))


def _refused(client: MixedGroupClient) -> None:
    group = "refused"
    client.beat("alone", group, "new", 0)
    client.subscribe("other type", group, protocol_type="connect")
    client.subscribe("no subscription", group, metadata=b"\x00")
    client.subscribe("no protocols", group, protocols=[])
    invented = client.subscribe("invented id", group, "invented")
    client.sync("invented id", group, "invented", invented.generation_id)
    client.subscribe("nothing in common", group, protocols=["sticky"])
    client.subscribe("unknown instance", group, "somebody", instance="i")
    client.heartbeat("absent", group, "absent", 1)
    client.heartbeat("from the past", group, "invented", invented.generation_id - 1)
    client.leave("invented id", group, ("invented", None))
    client.leave("of the other protocol", group, ("new", None), ("new", "i"))
    joined = client.enter("connect", "connect group", protocol_type="connect", protocols=[("x", b"")])
    client.beat("not of consumers", "connect group", "new", 0)
    client.leave("connect", "connect group", (joined.member_id, None))
    joined = client.enter("garbage", "garbage group", protocols=[("range", b"")])
    client.beat("no subscriptions", "garbage group", "new", 0)
    client.leave("garbage", "garbage group", (joined.member_id, None))


def _statics(client: MixedGroupClient) -> None:
    group = "static roll"
    first = client.subscribe("static", group, instance="i1")
    old = first.member_id
    client.sync("static", group, old, 1, assign=[old], assignment=assignment_bytes(ALL), instance="i1")
    epoch = client.beat("in its place", group, "n1", 0, instance="i1")
    client.describe_consumers("in its place", group)
    client.heartbeat("fenced", group, old, 1, instance="i1")
    client.commit("fenced", group, 1, member=old, generation=1, instance="i1")
    client.beat("twice", group, "n2", 0, instance="i1")
    client.beat("away", group, "n1", -2, instance="i1")
    back = client.subscribe("back as classic", group, instance="i1")
    client.describe("back as classic", group)
    client.sync("back as classic", group, back.member_id, back.generation_id, instance="i1")
    client.heartbeat("back as classic", group, back.member_id, back.generation_id, instance="i1")
    client.beat("fenced", group, "n1", epoch, [])
    client.leave("by instance", group, ("", "i1"))


def _empty(client: MixedGroupClient) -> None:
    group = "empty"
    client.beat("comes", group, "new", 0)
    client.beat("goes", group, "new", -1)
    joined = client.subscribe("an empty group makes room", group)
    client.leave("goes too", group, (joined.member_id, None))
    client.beat("and back", group, "new", 0)
    client.beat("goes", group, "new", -1)
    client.delete_groups("empty", group)
    client.beat("unknown", group, "new", 3)
    client.beat("unknown id", group, "new", -1)
    client.fetch("absent", UUID(int=1).hex)


def _again(client: MixedGroupClient) -> None:
    """Members that join again under the id that they have: a dynamic one goes on at any epoch (KAFKA-19233)."""
    epoch = client.beat("joins", "again", "a", 0)
    client.beat("joins", "again", "a", 0)
    time.sleep(1.5)
    client.beat("later", "again", "b", 0)
    client.beat("joins", "again", "a", epoch, [0, 1])
    client.beat("later", "again", "a", 0)
    client.beat("later", "again", "a", 0)
    client.beat("later", "again", "a", epoch + 1, [0])
    client.beat("later", "again", "b", epoch + 1, [])
    client.beat("joins", "again static", "s", 0, instance="i")
    client.beat("static again", "again static", "s", 0, instance="i")
