"""Every rebalance and every removal leaves its cause in the group's timeline, as `odradek groups explain` shows it."""

from __future__ import annotations

from typing import Any

from odradek.common.errors import ErrorCode
from tests.support.models.consumer_shard import Box
from tests.support.models.mixed_groups import GROUP, MixedShard, topics_view
from tests.support.models.mixed_groups import ClassicClient as MixedClient
from tests.support.models.mixed_groups import NewClient as MixedConsumer


def causes(shard: Any, kind: str = "rebalance", group: str = "g") -> list[str]:
    timeline = shard.machine.journal.timeline(group, shard.now)
    assert timeline is not None
    return [each["reason"] for each in timeline["events"] if each["kind"] == kind]


def last(shard: Any, kind: str = "rebalance", group: str = "g") -> str:
    return causes(shard, kind, group)[-1]


class TestClassic:
    def test_a_member_joins_with_its_reason(self, shard: Any) -> None:
        asked = shard.join("")
        shard.begin_join(asked.member_id, reason="deployed")
        assert last(shard) == f"member {asked.member_id} joined"
        assert last(shard, "joined") == "deployed"

    def test_the_leader_joins_again(self, shard: Any) -> None:
        (leader, _), _ = shard.stable(2)
        shard.begin_join(leader, reason="partitions changed")
        assert last(shard).startswith(f"the leader {leader} joined again: it saw topics change")
        assert last(shard).endswith("(partitions changed)")

    def test_a_member_joins_again_with_another_subscription(self, shard: Any) -> None:
        (_, follower), _ = shard.stable(2)
        shard.begin_join(follower, protocols=[("range", b"other")])
        assert last(shard) == f"member {follower} joined again with another subscription, or other partitions"

    def test_a_member_leaves(self, shard: Any) -> None:
        (_, follower), _ = shard.stable(2)
        shard.leave((follower, None))
        assert last(shard) == f"left: {follower}"
        assert last(shard, "left") == ""

    def test_a_member_leaves_with_its_reason(self, shard: Any) -> None:
        (_, follower), _ = shard.stable(2)
        shard.leave((follower, None), reason="scaled down")
        assert last(shard, "left") == "scaled down"

    def test_a_static_member_is_taken_out_by_its_instance(self, shard: Any) -> None:
        shard.begin_join("", instance="i", client="static")
        shard.leave(("", "i"), reason="decommissioned")
        assert causes(shard, "left") == ["decommissioned"]

    def test_a_member_is_silent(self, shard: Any) -> None:
        (leader, follower), generation_id = shard.stable(2)
        for _ in range(3):
            shard.advance(4_000)
            shard.heartbeat(leader, generation_id)
        assert last(shard) == f"the session of member {follower} timed out"
        assert last(shard, "removed") == "it sent no heartbeat within its session timeout of 10000 ms"

    def test_a_member_does_not_join_the_rebalance(self, shard: Any) -> None:
        (leader, follower), generation_id = shard.stable(2, rebalance_ms=6_000)
        shard.begin_join(leader, rebalance_ms=6_000)
        shard.advance(3_000)
        shard.heartbeat(follower, generation_id)
        shard.advance(4_000)
        assert last(shard, "removed") == "it did not join the rebalance in time"
        assert list(shard.group().members) == [leader]

    def test_a_member_does_not_ask_for_its_assignment(self, shard: Any) -> None:
        (leader, follower), _ = shard.stable(2, rebalance_ms=6_000)
        ticket = shard.begin_join(leader, rebalance_ms=6_000)
        shard.begin_join(follower, rebalance_ms=6_000)
        shard.sync(leader, shard.answers[ticket].generation_id, {})
        shard.advance(6_000)
        assert last(shard) == "members did not ask for their assignment in time"
        assert last(shard, "removed") == "it did not ask for its assignment in time"

    def test_an_assignment_is_not_stored(self, shard: Any) -> None:
        (leader, follower), _ = shard.stable(2)
        ticket = shard.begin_join(leader)
        shard.begin_join(follower)
        shard.fail_writes = ErrorCode.NOT_ENOUGH_REPLICAS
        shard.begin_sync(leader, shard.answers[ticket].generation_id, {})
        assert last(shard) == "the assignment could not be stored (NOT_ENOUGH_REPLICAS)"

    def test_a_static_member_comes_back_otherwise(self, shard: Any) -> None:
        ticket = shard.begin_join("", instance="i", protocols=[("range", b""), ("other", b"")])
        shard.advance(3_000)
        member = shard.answers[ticket].member_id
        shard.sync(member, 1, {}, instance="i")
        shard.begin_join("", instance="i", protocols=[("other", b"")])
        assert last(shard) == "static member i came back with other protocols, or during a rebalance"
        assert last(shard, "returned") == f"it takes the place of {member}, which is fenced"

    def test_a_limit_was_lowered(self, make_shard: Any) -> None:
        before, after = make_shard(), make_shard(max_size=1)
        before.stable(2)
        for offset, record in enumerate(before.log):
            after.machine.replay(record, offset)
        after.apply(after.machine.loaded(after.now, "this broker started"))
        assert last(after) == "the group is larger than group.max.size"
        assert last(after, "loaded") == "this broker started; 2 members, each with a fresh session"


class TestConsumer:
    def test_a_member_joins_subscribes_otherwise_and_leaves(self) -> None:
        box = Box(topics_view(ta=2, tb=2))
        epoch = box.beat("m").member_epoch
        assert last(box) == "member m joined"
        epoch = box.beat("m", epoch, subscribed_topic_names=["tb"]).member_epoch
        assert last(box) == "member m subscribes to other topics"
        epoch = box.beat("m", epoch, subscribed_topic_regex="ta").member_epoch
        epoch = box.beat("m", epoch).member_epoch
        assert last(box) == "the regular expression of member m was matched"
        box.topics = topics_view(2, ta=2, tb=3)
        box.beat("m", epoch)
        assert last(box) == "a topic that is subscribed to was made, deleted, grew, or moved"
        box.beat("other")
        box.beat("m", -1)
        assert last(box) == "left: m"

    def test_a_member_is_silent(self) -> None:
        box = Box(topics_view(ta=2))
        box.beat("m")
        box.advance(60_000)
        assert last(box, "removed") == "its session timed out"
        assert last(box) == "removed: m"

    def test_a_member_does_not_give_up_what_it_must(self) -> None:
        box = Box(topics_view(ta=2))
        epoch = box.beat("a").member_epoch
        box.beat("b")
        for _ in range(6):
            box.beat("a", epoch)
            box.advance(2_000)
            if not box.group.members.get("a"):
                break
        assert last(box, "removed") == "it did not give up its partitions within its rebalance timeout"


class TestMixed:
    def test_a_classic_member_joins_a_consumer_group(self) -> None:
        shard = MixedShard(topics_view(ta=2))
        consumer, classic = MixedConsumer(shard, "n", ["ta"]), MixedClient(shard, "c", ["ta"])
        consumer.settle()
        for _ in range(5):
            consumer.settle()
            classic.settle()
            shard.advance(100)
        assert shard.kind == "consumer"
        assert last(shard, group=GROUP) == f"member {classic.member_id} joined"

    def test_a_classic_member_takes_the_place_of_a_static_one(self) -> None:
        shard = MixedShard(topics_view(ta=2))
        clients = [MixedConsumer(shard, "n0", ["ta"], instance_id="i"), MixedConsumer(shard, "n1", ["ta"])]
        for client in clients:
            client.settle()
        joined = causes(shard, "joined", GROUP)
        assert causes(shard, "returned", GROUP) == []
        MixedClient(shard, "c0", ["ta"], instance_id="i").settle()
        assert causes(shard, "returned", GROUP) == [f"it takes the place of {clients[0].member_id}, which is fenced"]
        assert causes(shard, "joined", GROUP) == joined
        assert shard.kind == "consumer"

    def test_a_classic_member_does_not_join_again(self) -> None:
        shard = MixedShard(topics_view(ta=4), policy="upgrade")
        slow, other = MixedClient(shard, "slow", ["ta"]), MixedConsumer(shard, "n", ["ta"])
        for _ in range(5):
            slow.settle()
            shard.advance(100)
        for _ in range(40):
            other.settle()
            shard.advance(2_000)
            slow._beat()
        assert last(shard, "removed", GROUP) == "it did not join the rebalance within its rebalance timeout"

    def test_a_classic_member_does_not_ask_for_its_assignment(self) -> None:
        shard = MixedShard(topics_view(ta=4), policy="upgrade")
        slow, other = MixedClient(shard, "slow", ["ta"]), MixedConsumer(shard, "n", ["ta"])
        for _ in range(5):
            slow.settle()
            shard.advance(100)
        other.settle()
        slow._beat()
        slow.settle()
        assert slow.waiting is not None
        slow.generation_id = shard.answers[slow.waiting[1]].generation_id
        for _ in range(40):
            other.settle()
            shard.advance(2_000)
            slow._beat()
        assert last(shard, "removed", GROUP) == "it did not ask for its assignment within its rebalance timeout"

    def test_the_last_consumer_goes(self) -> None:
        shard = MixedShard(topics_view(ta=4))
        classic, consumer = MixedClient(shard, "c", ["ta"]), MixedConsumer(shard, "n", ["ta"])
        for turn in range(20):
            classic.settle()
            if turn > 3:
                consumer.settle()
            shard.advance(100)
        assert last(shard, "converted", GROUP) == "to a consumer group: a consumer joined"
        consumer.leave()
        assert last(shard, "converted", GROUP).startswith("to a classic group")
        assert last(shard, group=GROUP) == "the group is one of the classic protocol again"
