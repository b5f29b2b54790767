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
from tests.support.models.group_story import Lines, Story
from tests.support.models.mixed_groups import assignment_bytes, subscription_bytes

ALL = frozenset({("story", 0), ("story", 1)})
NONE: frozenset[tuple[str, int]] = frozenset()


class MixedStory(Story):
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
            request.subscribed_topic_names = settings.get("topics", ["story"])
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
                    name=name, metadata=settings.get("metadata", subscription_bytes(["story"], owned))
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


def play_mixed_groups(port: int) -> Lines:
    """The whole story of one broker."""
    story = MixedStory(port)
    story.prepare()
    for chapter in (_up_and_down, _refused, _statics, _empty, _again):
        chapter(story)
    story.wire.close()
    return story.lines


def _up_and_down(story: MixedStory) -> None:
    group = "rolled"
    classic = story.subscribe("first", group)
    old = classic.member_id
    story.sync("first", group, old, 1, assign=[old], assignment=assignment_bytes(ALL))
    story.commit("before", group, 1, member=old, generation=1)
    epoch = story.beat("new", group, "new", 0)
    story.describe("converted", group)
    story.describe_consumers("converted", group)
    story.list_groups("converted", 5, types=["consumer"])
    story.fetch("converted", group)
    story.beat("new waits", group, "new", epoch, [])
    story.heartbeat("must join", group, old, 1)
    story.commit("still a member", group, 2, member=old, generation=1, version=2)
    story.sync("must join", group, old, 1)
    again = story.subscribe("joins again", group, old, NONE)
    story.heartbeat("before sync", group, old, again.generation_id)
    story.sync("another generation", group, old, 1)
    story.sync("another protocol", group, old, again.generation_id, protocol_name="roundrobin")
    story.sync("another type", group, old, again.generation_id, protocol_type="connect")
    story.sync("converted", group, old, again.generation_id)
    story.heartbeat("converted", group, old, again.generation_id)
    story.beat("new gets", group, "new", epoch, [])
    story.describe_consumers("both", group)
    for version in (2, 8, 9):
        story.commit(f"classic {version}", group, 3, member=old, generation=again.generation_id, version=version)
        story.commit(f"stale {version}", group, 3, member=old, generation=again.generation_id - 1, version=version)
        story.commit(f"new {version}", group, 3, member="new", generation=epoch, version=version)
        story.commit(f"new, stale {version}", group, 3, member="new", generation=epoch - 1, version=version)
        story.commit(f"absent {version}", group, 3, version=version)
    story.heartbeat("of the other protocol", group, "new", epoch)
    story.sync("of the other protocol", group, "new", epoch)
    story.leave("absent", group, ("absent", None))
    story.delete_groups("not empty", group)
    story.delete_offset("subscribed", group)
    # Kafka makes a new target assignment once a second at most (KIP-1263).
    time.sleep(1.5)
    second = story.subscribe("second classic", group, protocols=["range", "roundrobin"])
    story.sync("second classic", group, second.member_id, second.generation_id)
    story.describe_consumers("three", group)
    story.leave("second classic", group, (second.member_id, None))
    time.sleep(1.5)
    story.heartbeat("after it", group, old, again.generation_id)
    third = story.subscribe("after it", group, old, NONE)
    story.sync("after it", group, old, third.generation_id)
    story.beat("after it", group, "new", epoch, [])
    story.beat("new leaves", group, "new", -1)
    story.describe_consumers("converted back", group)
    story.heartbeat("converted back", group, old, third.generation_id)
    last = story.subscribe("converted back", group, old, NONE)
    story.sync("converted back", group, old, last.generation_id, assign=[old], assignment=assignment_bytes(ALL))
    story.heartbeat("stable again", group, old, last.generation_id)
    story.fetch("offsets are kept", group)
    story.leave("last", group, (old, None))


def _refused(story: MixedStory) -> None:
    group = "refused"
    story.beat("alone", group, "new", 0)
    story.subscribe("other type", group, protocol_type="connect")
    story.subscribe("no subscription", group, metadata=b"\x00")
    story.subscribe("no protocols", group, protocols=[])
    invented = story.subscribe("invented id", group, "invented")
    story.sync("invented id", group, "invented", invented.generation_id)
    story.subscribe("nothing in common", group, protocols=["sticky"])
    story.subscribe("unknown instance", group, "somebody", instance="i")
    story.heartbeat("absent", group, "absent", 1)
    story.heartbeat("from the past", group, "invented", invented.generation_id - 1)
    story.leave("invented id", group, ("invented", None))
    story.leave("of the other protocol", group, ("new", None), ("new", "i"))
    joined = story.enter("connect", "connect group", protocol_type="connect", protocols=[("x", b"")])
    story.beat("not of consumers", "connect group", "new", 0)
    story.leave("connect", "connect group", (joined.member_id, None))
    joined = story.enter("garbage", "garbage group", protocols=[("range", b"")])
    story.beat("no subscriptions", "garbage group", "new", 0)
    story.leave("garbage", "garbage group", (joined.member_id, None))


def _statics(story: MixedStory) -> None:
    group = "static roll"
    first = story.subscribe("static", group, instance="i1")
    old = first.member_id
    story.sync("static", group, old, 1, assign=[old], assignment=assignment_bytes(ALL), instance="i1")
    epoch = story.beat("in its place", group, "n1", 0, instance="i1")
    story.describe_consumers("in its place", group)
    story.heartbeat("fenced", group, old, 1, instance="i1")
    story.commit("fenced", group, 1, member=old, generation=1, instance="i1")
    story.beat("twice", group, "n2", 0, instance="i1")
    story.beat("away", group, "n1", -2, instance="i1")
    back = story.subscribe("back as classic", group, instance="i1")
    story.describe("back as classic", group)
    story.sync("back as classic", group, back.member_id, back.generation_id, instance="i1")
    story.heartbeat("back as classic", group, back.member_id, back.generation_id, instance="i1")
    story.beat("fenced", group, "n1", epoch, [])
    story.leave("by instance", group, ("", "i1"))


def _empty(story: MixedStory) -> None:
    group = "empty"
    story.beat("comes", group, "new", 0)
    story.beat("goes", group, "new", -1)
    joined = story.subscribe("an empty group makes room", group)
    story.leave("goes too", group, (joined.member_id, None))
    story.beat("and back", group, "new", 0)
    story.beat("goes", group, "new", -1)
    story.delete_groups("empty", group)
    story.beat("unknown", group, "new", 3)
    story.beat("unknown id", group, "new", -1)
    story.fetch("absent", UUID(int=1).hex)


def _again(story: MixedStory) -> None:
    """Members that join again under the id that they have: a dynamic one goes on at any epoch (KAFKA-19233)."""
    epoch = story.beat("joins", "again", "a", 0)
    story.beat("joins", "again", "a", 0)
    time.sleep(1.5)
    story.beat("later", "again", "b", 0)
    story.beat("joins", "again", "a", epoch, [0, 1])
    story.beat("later", "again", "a", 0)
    story.beat("later", "again", "a", 0)
    story.beat("later", "again", "a", epoch + 1, [0])
    story.beat("later", "again", "b", epoch + 1, [])
    story.beat("joins", "again static", "s", 0, instance="i")
    story.beat("static again", "again static", "s", 0, instance="i")
