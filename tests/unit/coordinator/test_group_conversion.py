"""Groups that change their protocol while members are live, over the real machine: no member is lost, no record is read
twice, and the log says the same."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.group.classic.group import ClassicGroup, Member
from odradek.coordinator.group.classic.membership import Caller
from odradek.coordinator.group.classic.state import GroupState
from odradek.coordinator.group.consumer.records import ConsumerGroupRecord
from odradek.coordinator.group.consumer.state import ConsumerGroupState
from odradek.coordinator.group.records import GroupRecord
from odradek.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.models.mixed_groups import (
    GROUP,
    ClassicClient,
    MixedShard,
    NewClient,
    assignment_bytes,
    subscription_bytes,
    topics_view,
)

AnyClient = ClassicClient | NewClient


def rounds(clients: list[AnyClient], count: int = 14, ms: int = 200) -> None:
    for _ in range(count):
        for client in clients:
            client.settle()
        clients[0].shard.advance(ms)
        assert_one_owner(clients)


def assert_one_owner(clients: list[AnyClient]) -> None:
    owned = [partition for client in clients for partition in client.owned]
    assert len(owned) == len(set(owned)), "two clients own one partition"


def shares(clients: list[AnyClient]) -> list[int]:
    return sorted(len(client.owned) for client in clients)


def classics(shard: MixedShard, count: int, **settings: Any) -> list[AnyClient]:
    made: list[AnyClient] = [ClassicClient(shard, f"c{n}", ["ta"], **settings) for n in range(count)]
    rounds(made)
    assert shard.kind == "classic"
    return made


def join_code(shard: MixedShard) -> ErrorCode:
    try:
        NewClient(shard, "n", ["ta"])._beat(0)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_a_group_is_rolled_to_the_other_protocol_and_back(cooperative: bool) -> None:
    shard = MixedShard(topics_view(ta=6))
    clients = classics(shard, 3, cooperative=cooperative)
    for index in range(3):  # one after the other: the new one comes, then the old one goes
        clients.append(NewClient(shard, f"n{index}", ["ta"]))
        rounds(clients)
        assert shard.kind == "consumer"
        assert shares(clients) == [1, 1, 2, 2]
        clients[0].leave()
        rounds(clients[1:])
        clients = clients[1:]
        assert shares(clients) == [2, 2, 2]
    found = shard.machine.consumers.find(GROUP)
    assert found is not None and not found.classic_members
    for index in range(3):
        clients.append(ClassicClient(shard, f"d{index}", ["ta"], cooperative=cooperative))
        rounds(clients)
        assert shares(clients) == [1, 1, 2, 2]
        clients[0].leave()
        clients = clients[1:]
        rounds(clients)
        assert shares(clients) == [2, 2, 2]
    assert shard.kind == "classic"
    before = shares(clients)
    shard.restart()
    for client in clients:
        client.discard_parked()
    rounds(clients)
    assert shares(clients) == before


def test_an_upgrade_revokes_nothing_that_a_member_keeps() -> None:
    """A cooperative classic member reads on without a stop from the partitions that it keeps."""
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 2, cooperative=True)
    kept = [client.owned for client in clients]
    new = NewClient(shard, "n", ["ta"])
    new.settle()
    assert shard.kind == "consumer"
    assert [client.owned for client in clients] == kept
    assert not new.owned, "everything is somebody's"
    rounds([*clients, new])
    assert shares([*clients, new]) == [1, 1, 2]
    assert all(client.owned <= before for client, before in zip(clients, kept, strict=True))


def test_a_last_consumer_that_is_back_as_a_classic_one_costs_no_rebalance() -> None:
    shard = MixedShard(topics_view(ta=4))
    classic, new = ClassicClient(shard, "c", ["ta"]), NewClient(shard, "n", ["ta"], instance_id="i")
    rounds([classic, new])
    assert shard.kind == "consumer" and shares([classic, new]) == [2, 2]
    owned, before = classic.owned, classic.rebalances
    back = ClassicClient(shard, "b", ["ta"], instance_id="i")
    rounds([classic, back])
    assert shard.kind == "classic" and (classic.owned, classic.rebalances) == (owned, before)
    assert shares([classic, back]) == [2, 2]


def test_a_consumer_joins_a_classic_group_in_its_first_rebalance() -> None:
    shard = MixedShard(topics_view(ta=4))
    classic, new = ClassicClient(shard, "c", ["ta"]), NewClient(shard, "n", ["ta"])
    classic.settle()
    classic.settle()
    assert shard.kind == "classic" and classic.generation_id == -1, "it waits for its first generation"
    new.settle()
    assert shard.kind == "consumer"
    rounds([classic, new])
    assert shares([classic, new]) == [2, 2]


def test_the_log_has_kafkas_records_of_both_protocols() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 2)
    group = shard.machine.groups.find(GROUP)
    assert group is not None
    generation, before = group.generation_id, len(shard.log)
    new = NewClient(shard, "n", ["ta"])
    new.settle()
    written = shard.log[before:]
    assert isinstance(written[0], GroupRecord) and written[0].value is None, "the classic group is removed first"
    epochs = [
        record.value.assignment_epoch
        for record in written
        if isinstance(record, ConsumerGroupRecord)
        and isinstance(record.value, ConsumerGroupTargetAssignmentMetadataValue)
    ]
    assert epochs == [generation, generation + 1], "the generation is an assignment, and the new member gets another"
    consumers = shard.machine.consumers.find(GROUP)
    assert consumers is not None
    assert consumers.group_epoch.value == generation + 1
    assert {each.member_epoch for each in map(consumers.current_of, consumers.classic_members)} == {generation}
    shard.restart()
    again = shard.machine.consumers.find(GROUP)
    assert again is not None
    assert dict(again.members) == dict(consumers.members), "protocols and session timeouts of classic members too"
    assert dict(again.current) == dict(consumers.current) and dict(again.owners) == dict(consumers.owners)
    rounds([*clients, new])
    before = len(shard.log)
    new.leave()
    kinds = [type(record.key).__name__ for record in shard.log[before:] if isinstance(record, ConsumerGroupRecord)]
    assert kinds.count("ConsumerGroupMemberMetadataKey") == 3 and kinds[-1] == "ConsumerGroupMetadataKey"
    last = shard.log[-1]
    assert isinstance(last, GroupRecord) and last.value is not None and len(last.value.members) == 2


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("DOWNGRADE", False, True),
        ("Bidirectional", True, True),
    ],
)
def test_the_policy_allows_each_direction(policy: str, up: bool, down: bool) -> None:
    shard = MixedShard(topics_view(ta=4), policy=policy)
    clients = classics(shard, 2)
    assert join_code(shard) is (ErrorCode.NONE if up else ErrorCode.GROUP_ID_NOT_FOUND)
    rounds(clients)
    assert shard.kind == ("consumer" if up else "classic")
    other = MixedShard(topics_view(ta=4), policy=policy)
    new = NewClient(other, "n", ["ta"])
    mixed: list[AnyClient] = [new, ClassicClient(other, "c", ["ta"])]
    rounds(mixed)
    assert other.kind == "consumer", "classic members may join a consumer group whatever the policy is"
    new.leave()
    rounds(mixed[1:])
    assert other.kind == ("classic" if down else "consumer")
    assert shares(mixed[1:]) == [4]


def test_groups_that_cannot_be_upgraded() -> None:
    shard = MixedShard(topics_view(ta=4))
    for protocol_type, metadata in (("connect", b"\0\1"), ("consumer", b"nonsense")):
        group = ClassicGroup(GROUP)
        group.add(Member("m", None, "c", "/h", 1000, 1000, protocol_type, (("range", metadata),)))
        group.transition_to(GroupState.PREPARING_REBALANCE, shard.now)
        shard.machine.groups.adopt(group)
        assert join_code(shard) is ErrorCode.GROUP_ID_NOT_FOUND
        assert shard.machine.groups.find(GROUP) is group and not shard.log
    assert MixedShard(topics_view(ta=4)).machine.consumers.find(GROUP) is None


@pytest.mark.parametrize(("name", "may"), [("cooperative-sticky", True), ("stream", False)])
def test_assignments_that_only_a_leader_can_read_keep_a_group_classic(name: str, may: bool) -> None:
    """Kafka Streams' assignor sends tasks along with partitions: a coordinator cannot."""
    shard = MixedShard(topics_view(ta=1))
    with_data = assignment_bytes(frozenset({("ta", 0)}))[:-4] + b"\0\0\0\1x"
    member = Member("m", None, "c", "/h", 1000, 1000, "consumer", ((name, subscription_bytes(["ta"])),), with_data)
    group = ClassicGroup(GROUP)
    group.add(member)
    group.state, group.generation_id, group.protocol_name = GroupState.STABLE, 1, name
    shard.machine.groups.adopt(group)
    assert join_code(shard) is (ErrorCode.NONE if may else ErrorCode.GROUP_ID_NOT_FOUND)
    assert (shard.machine.groups.find(GROUP) is group) is not may


def test_a_refused_join_changes_nothing_of_the_classic_group() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 2)
    before = len(shard.log)
    new = NewClient(shard, "n", ["ta"], instance_id="i")
    with pytest.raises(ApiError):
        new._beat(5)
    with pytest.raises(ApiError):
        new._beat(-1)
    assert shard.kind == "classic" and len(shard.log) == before
    shard.advance(9_000)
    rounds(clients)
    assert shares(clients) == [2, 2] and {each.rebalances for each in clients} <= {1, 2}  # type: ignore[union-attr]  # all are classic


def test_a_conversion_that_is_not_written_has_not_happened() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 2)
    before = shares(clients)
    shard.fail_next = True
    new = NewClient(shard, "n", ["ta"])
    with pytest.raises(ApiError):
        new._beat(0)
    assert shard.kind == "classic"
    rounds(clients)
    assert shares(clients) == before
    silent = clients.pop()
    for _ in range(8):
        shard.advance(3_000)
        rounds(clients, 2)
    assert shares(clients) == [4], "sessions are watched again"
    rounds([*clients, new])
    assert shard.kind == "consumer"
    shard.fail_next = True
    with pytest.raises(ApiError):
        new.leave()
    assert shard.kind == "consumer"
    new.owned = frozenset()
    for _ in range(20):
        shard.advance(3_000)
        rounds(clients, 2)
    assert shard.kind == "classic" and shares(clients) == [4], "the member that could not leave timed out"
    assert silent is not None


def test_members_without_heartbeats_are_removed_in_both_protocols() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 2)
    new = NewClient(shard, "n", ["ta"])
    rounds([*clients, new])
    for _ in range(6):
        shard.advance(3_000)
        rounds([clients[0], new], 2)
    assert shares([clients[0], new]) == [2, 2]
    for _ in range(20):
        shard.advance(3_000)
        rounds([clients[0]], 2)
    assert shard.kind == "classic"
    assert shares([clients[0]]) == [4]


def test_a_classic_member_that_does_not_join_the_rebalance_is_removed() -> None:
    """It sends heartbeats and is asked to join again, and does not within its rebalance timeout."""
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 1)
    new = NewClient(shard, "n", ["ta"])
    new.settle()
    stubborn = clients[0]
    assert isinstance(stubborn, ClassicClient)
    for _ in range(22):
        if stubborn.joined:
            stubborn._beat()
            stubborn.joined = stubborn.generation_id > 0
        new.settle()
        shard.advance(3_000)
    assert shares([new]) == [4]
    assert stubborn.generation_id == -1, "it learnt that it is no member"


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
def test_static_members_change_the_protocol_in_place(cooperative: bool) -> None:
    shard = MixedShard(topics_view(ta=4))
    clients: list[AnyClient] = [
        ClassicClient(shard, f"c{n}", ["ta"], cooperative=cooperative, instance_id=f"i{n}") for n in range(2)
    ]
    rounds(clients)
    was = clients[0].owned
    replaced = clients[0]
    replaced.owned = frozenset()  # stopped without leaving, as static members do
    clients[0] = NewClient(shard, "n0", ["ta"], instance_id="i0")
    clients[0].settle()
    assert clients[0].owned == was, "it has its place at once"
    replaced.settle()
    assert replaced.fenced
    rounds(clients)
    assert shares(clients) == [2, 2] and shard.kind == "consumer"
    clients[0].owned = frozenset()
    clients[0] = ClassicClient(shard, "c0", ["ta"], cooperative=cooperative, instance_id="i0")
    rounds(clients)
    assert shard.kind == "classic", "the last of the consumer protocol was replaced"
    assert shares(clients) == [2, 2]


def test_leave_answers_for_each_member_of_either_protocol() -> None:
    shard = MixedShard(topics_view(ta=4))
    static, dynamic = (ClassicClient(shard, "c0", ["ta"], instance_id="i"), ClassicClient(shard, "c1", ["ta"]))
    new, stays = NewClient(shard, "n0", ["ta"]), NewClient(shard, "n1", ["ta"])
    rounds([static, dynamic, new, stays])
    assert shard.kind == "consumer"
    wanted = {
        (dynamic.member_id, None): ErrorCode.NONE,
        ("unknown", None): ErrorCode.UNKNOWN_MEMBER_ID,
        (dynamic.member_id, "i"): ErrorCode.FENCED_INSTANCE_ID,
        ("", "no such instance"): ErrorCode.UNKNOWN_MEMBER_ID,
        ("", "i"): ErrorCode.NONE,
        (new.member_id, None): ErrorCode.NONE,
    }
    leaving = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in wanted]
    request = LeaveGroupRequest(group_id=GROUP, members=leaving)
    answers = shard.apply(shard.machine.leave(request, shard.now)).members
    assert {(each.member_id, each.group_instance_id): each.error_code for each in answers} == wanted
    group = shard.machine.consumers.find(GROUP)
    assert group is not None and list(group.members) == [stays.member_id]


@pytest.mark.parametrize(("version", "instance_id", "is_asked"), [(3, None, False), (4, None, True), (4, "i", False)])
def test_a_classic_member_is_asked_for_its_id_from_version_4_on(
    version: int, instance_id: str | None, is_asked: bool
) -> None:
    """So it is in a group of the consumer protocol, too; the group stores nothing of a member that does not return."""
    shard = MixedShard(topics_view(ta=4))
    rounds([*classics(shard, 1), NewClient(shard, "n", ["ta"])])
    group = shard.machine.consumers.find(GROUP)
    assert group is not None
    before = len(group.members)
    request = JoinGroupRequest(
        group_id=GROUP,
        group_instance_id=instance_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription_bytes(["ta"], frozenset()))],
    )
    caller = Caller("c", "/127.0.0.1", version, 10_000, "id")
    shard.apply(shard.machine.join(request, caller, shard.now), 10_000)
    answer = shard.answers.get(10_000)
    code = ErrorCode.NONE if answer is None else ErrorCode(answer.error_code)
    assert (code is ErrorCode.MEMBER_ID_REQUIRED) == is_asked
    assert len(group.members) - before == (not is_asked)


def test_classic_members_commit_with_their_generation() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 1)
    new = NewClient(shard, "n", ["ta"])
    rounds([*clients, new])
    classic = clients[0]
    assert isinstance(classic, ClassicClient)

    def commit(member_id: str, epoch: int, version: int) -> ErrorCode:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name="ta", partitions=[partition])],
        )
        try:
            shard.apply(shard.machine.commits.commit(request, version, shard.now))
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    assert commit(classic.member_id, classic.generation_id, 2) is ErrorCode.NONE
    assert commit(classic.member_id, classic.generation_id - 1, 2) is ErrorCode.ILLEGAL_GENERATION
    assert commit("n", new.epoch, 9) is ErrorCode.NONE
    assert commit("n", new.epoch, 8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit("n", new.epoch - 1, 9) is ErrorCode.STALE_MEMBER_EPOCH


def test_members_are_reported_apart_from_outside() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients: list[AnyClient] = [*classics(shard, 1), NewClient(shard, "n", ["ta"])]
    rounds(clients)
    described = shard.apply(shard.machine.describe_consumers([GROUP]))[0]
    assert sorted(each.member_type for each in described.members) == [0, 1]
    consumers = shard.machine.consumers.find(GROUP)
    assert consumers is not None and consumers.state is ConsumerGroupState.STABLE
    listed = shard.apply(shard.machine.list_groups([], []))
    assert [(each.group_id, each.group_type) for each in listed] == [(GROUP, "consumer")], "once"


def test_a_rebalance_that_a_downgrade_owes_survives_a_crash() -> None:
    shard = MixedShard(topics_view(ta=4))
    clients = classics(shard, 2, cooperative=True)
    new = NewClient(shard, "n", ["ta"])
    rounds([*clients, new])
    assert len(new.owned) == 1
    new.leave()
    shard.restart()
    rounds(clients)
    assert shares(clients) == [2, 2], "what the consumer left behind has an owner"


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
@pytest.mark.parametrize("seed", range(25))
def test_at_most_one_owner_whatever_happens(seed: int, cooperative: bool) -> None:  # noqa: C901 - a case for each event
    """Members of both protocols that come and go, restarts in the middle, topics that grow, writes that fail."""
    rng = random.Random(seed)
    shard = MixedShard(topics_view(ta=5))
    clients: list[AnyClient] = []
    count, version, made = 5, 1, 0
    kinds: set[str] = set()
    for _ in range(220):
        act = rng.random()
        if act < 0.1 and len(clients) < 5:
            made += 1
            if rng.random() < 0.5:
                clients.append(ClassicClient(shard, f"c{made}", ["ta"], cooperative=cooperative))
            else:
                clients.append(NewClient(shard, f"n{made}", ["ta"]))
        elif act < 0.17 and clients:
            gone = clients.pop(rng.randrange(len(clients)))
            if rng.random() < 0.7 and (gone.epoch if isinstance(gone, NewClient) else gone.joined):
                with contextlib.suppress(ApiError):
                    gone.leave()
        elif act < 0.2:
            count, version = count + rng.randrange(2), version + 1
            shard.topics = topics_view(version, ta=count)
        elif act < 0.24:
            shard.restart()
            for client in clients:
                client.discard_parked()
        elif act < 0.27:
            shard.fail_next = True
        elif clients:
            rng.choice(clients).settle()
            shard.advance(rng.randrange(25))
        kinds.add(shard.kind)
        assert_one_owner(clients)
    shard.fail_next = False
    clients = clients or [NewClient(shard, "last", ["ta"])]
    for _ in range(60):
        rounds(clients, 2, 1_000)
    assert {index for client in clients for _, index in client.owned} == set(range(count)), [
        (type(each).__name__, sorted(each.owned)) for each in clients
    ]
    assert kinds == {"classic", "consumer"}


def test_a_classic_group_that_was_upgraded_is_kept_no_more() -> None:
    shard = MixedShard(topics_view(ta=6))
    clients = classics(shard, 2)
    live = shard.machine.groups.find(GROUP)
    assert live is not None and len(live.members) == 2
    clients.append(NewClient(shard, "n", ["ta"]))
    clients[2].settle()
    assert shard.kind == "consumer" and shard.machine.groups.find(GROUP) is None
    assert list(shard.machine.groups._live) == []
