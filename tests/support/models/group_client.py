"""A long conversation about groups, in every version, as a list of lines: the same on Apache Kafka and on us.

Member ids are random, so each line names them by their order of appearance.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups_request import ListGroupsRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.clients.wire import Wire
from tests.support.waiting import eventually

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x05topic\x00\x00\x00\x00\x00\x00\x00\x00"
Lines = list[str]


class GroupClient:
    """Talks to one broker and writes down what it says."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: Lines = []
        self._names: dict[str, str] = {}
        self.wire = Wire(port)
        self.topic_id = UUID(int=0)

    def name(self, member_id: str | None) -> str:
        if not member_id:
            return repr(member_id)
        return self._names.setdefault(member_id, f"member-{len(self._names) + 1}")

    def add(self, what: str, *facts: object) -> None:
        self.lines.append(f"{what}: " + " ".join(str(fact) for fact in facts))

    # ---- requests

    def prepare(self) -> None:
        self.wire.request(
            ApiKey.CREATE_TOPICS,
            5,
            CreateTopicsRequest(
                topics=[CreatableTopic(name="topic", num_partitions=2, replication_factor=1)], timeout_ms=30_000
            ),
        )
        eventually(lambda: not self.find(4).coordinators[0].error_code)
        eventually(self._has_topic)
        loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        eventually(lambda: ErrorCode(self.commit_code("warm-up", 0)) not in loading)

    def _has_topic(self) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="topic")])
        topic = self.wire.request(ApiKey.METADATA, 12, request).topics[0]
        self.topic_id = topic.topic_id
        return not topic.error_code and len(topic.partitions) == 2

    def await_state(self, group: str, state: str) -> None:
        """Wait until what was sent over another connection has come to the group, without a line about it."""
        request = DescribeGroupsRequest(groups=[group])
        eventually(
            lambda: self.wire.request(ApiKey.DESCRIBE_GROUPS, 5, request).groups[0].group_state == state,
            f"{group} is not {state}",
        )

    def find(self, version: int, key_type: int = 0) -> Any:
        request = FindCoordinatorRequest(key_type=key_type if version else 0)
        if version >= 4:
            request.coordinator_keys = ["g1", "g2"]
        else:
            request.key = "g1"
        return self.wire.request(ApiKey.FIND_COORDINATOR, version, request)

    def join_request(self, group: str, member: str, version: int, **settings: Any) -> JoinGroupRequest:
        protocols = settings.get("protocols", [("range", SUBSCRIPTION)])
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=settings.get("session_ms", 120_000),
            member_id=member,
            group_instance_id=settings.get("instance") if version >= 5 else None,
            protocol_type=settings.get("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        if version >= 1:
            request.rebalance_timeout_ms = 120_000
        return request

    def join(self, what: str, group: str, member: str = "", version: int = 9, **settings: Any) -> JoinGroupResponse:
        """A JoinGroup that is answered without anybody else's doing."""
        request = self.join_request(group, member, version, **settings)
        answer: JoinGroupResponse = self.wire.request(ApiKey.JOIN_GROUP, version, request)
        self.add_join(what, answer)
        return answer

    def add_join(self, what: str, answer: JoinGroupResponse) -> None:
        self.add(
            what, "JoinGroup", ErrorCode(answer.error_code).name, self.name(answer.member_id), answer.generation_id,
            answer.protocol_type, answer.protocol_name, "leader", self.name(answer.leader),
            sorted((self.name(m.member_id), m.group_instance_id, m.metadata) for m in answer.members),
            answer.skip_assignment,
        )  # fmt: skip

    def enter(self, what: str, group: str, version: int = 9, **settings: Any) -> JoinGroupResponse:
        """Join as a new member, with a second request where an id is asked for first."""
        answer = self.join(what, group, "", version, **settings)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.join(what, group, answer.member_id, version, **settings)
        return answer

    def sync(self, what: str, group: str, member: str, generation: int, version: int = 5, **settings: Any) -> None:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=settings.get("instance"),
            protocol_type=settings.get("protocol_type", "consumer") if version >= 5 else None,
            protocol_name=settings.get("protocol_name", "range") if version >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=each, assignment=settings.get("assignment", b"for " + settings.get("label", b"it"))
                )
                for each in settings.get("assign", [])
            ],
        )
        answer = self.wire.request(ApiKey.SYNC_GROUP, version, request)
        code = ErrorCode(answer.error_code).name
        self.add(what, "SyncGroup", code, answer.protocol_type, answer.protocol_name, answer.assignment)

    def heartbeat(
        self, what: str, group: str, member: str, generation: int, version: int = 4, instance: str | None = None
    ) -> None:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )
        answer = self.wire.request(ApiKey.HEARTBEAT, version, request)
        self.add(what, "Heartbeat", ErrorCode(answer.error_code).name)

    def leave(self, what: str, group: str, *members: tuple[str, str | None], version: int = 5) -> None:
        request = LeaveGroupRequest(group_id=group)
        if version < 3:
            request.member_id = members[0][0]
        else:
            request.members = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        answer = self.wire.request(ApiKey.LEAVE_GROUP, version, request)
        each = [(self.name(m.member_id), m.group_instance_id, ErrorCode(m.error_code).name) for m in answer.members]
        self.add(what, "LeaveGroup", ErrorCode(answer.error_code).name, each)

    def commit_code(
        self, group: str, offset: int, *, member: str = "", generation: int = -1, version: int = 9, **settings: Any
    ) -> int:
        part = OffsetCommitRequestPartition(
            partition_index=settings.get("partition", 0),
            committed_offset=offset,
            committed_metadata=settings.get("metadata", "note"),
        )
        topic = OffsetCommitRequestTopic(name=settings.get("topic", "topic"), partitions=[part])
        if version >= 10:
            topic.name, topic.topic_id = "", settings.get("topic_id", self.topic_id)
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
        )
        if version >= 7:
            request.group_instance_id = settings.get("instance")
        answer = self.wire.request(ApiKey.OFFSET_COMMIT, version, request)
        code: int = answer.topics[0].partitions[0].error_code
        return code

    def commit(self, what: str, *arguments: Any, **settings: Any) -> None:
        self.add(what, "OffsetCommit", ErrorCode(self.commit_code(*arguments, **settings)).name)

    def fetch(self, what: str, group: str, version: int = 9, *, everything: bool = False, topic: str = "topic") -> None:
        if version < 8:
            named = None if everything else [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
            answer = self.wire.request(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(group_id=group, topics=named))
            self.add_fetched(what, answer.error_code, answer.topics)
            return
        topics = [OffsetFetchRequestTopics(name=topic, topic_id=UUID(int=0), partition_indexes=[0, 1])]
        if version >= 10:
            topics[0].name, topics[0].topic_id = "", self.topic_id if topic == "topic" else UUID(int=77)
        asked = OffsetFetchRequestGroup(group_id=group, topics=None if everything else topics)
        answer = self.wire.request(ApiKey.OFFSET_FETCH, version, OffsetFetchRequest(groups=[asked]))
        self.add_fetched(what, answer.groups[0].error_code, answer.groups[0].topics)

    def add_fetched(self, what: str, code: int, topics: Any) -> None:
        parts = sorted(
            (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, ErrorCode(p.error_code).name)
            for topic in topics
            for p in topic.partitions
        )
        self.add(what, "OffsetFetch", ErrorCode(code).name, parts)

    def describe(self, what: str, group: str, version: int = 6) -> None:
        request = DescribeGroupsRequest(groups=[group])
        if version >= 3:
            request.include_authorized_operations = True
        found = self.wire.request(ApiKey.DESCRIBE_GROUPS, version, request).groups[0]
        self.add(
            what, "DescribeGroups", ErrorCode(found.error_code).name, found.error_message, found.group_id,
            found.group_state, found.protocol_type, found.protocol_data, found.authorized_operations,
            sorted((self.name(m.member_id), m.group_instance_id, m.client_id, m.client_host, m.member_metadata,
                    m.member_assignment) for m in found.members),
        )  # fmt: skip

    def list_groups(self, what: str, version: int = 5, states: list[str] | None = None, **settings: Any) -> None:
        request = ListGroupsRequest()
        if version >= 4:
            request.states_filter = states or []
        if version >= 5:
            request.types_filter = settings.get("types", [])
        found = self.wire.request(ApiKey.LIST_GROUPS, version, request)
        groups = sorted((g.group_id, g.protocol_type, g.group_state, g.group_type) for g in found.groups)
        self.add(what, "ListGroups", ErrorCode(found.error_code).name, groups)

    def delete_groups(self, what: str, *groups: str, version: int = 2) -> None:
        answer = self.wire.request(ApiKey.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=list(groups)))
        self.add(what, "DeleteGroups", sorted((r.group_id, ErrorCode(r.error_code).name) for r in answer.results))

    def delete_offset(self, what: str, group: str, topic: str = "topic", partition: int = 0) -> None:
        part = OffsetDeleteRequestPartition(partition_index=partition)
        request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=[part])])
        answer = self.wire.request(ApiKey.OFFSET_DELETE, 0, request)
        parts = [ErrorCode(p.error_code).name for t in answer.topics for p in t.partitions]
        self.add(what, "OffsetDelete", ErrorCode(answer.error_code).name, parts)


def record_groups(port: int) -> Lines:
    """All requests, and how one broker answers them."""
    client = GroupClient(port)
    client.prepare()
    for part in (_coordinators, _every_version, _two_members, _statics, _offsets, _administration, _bad_input):
        part(client)
    client.wire.close()
    return client.lines


def _coordinators(client: GroupClient) -> None:
    for version in range(7):
        answer = client.find(version)
        found = answer.coordinators if version >= 4 else [answer]
        client.add(f"find {version}", [(ErrorCode(c.error_code).name, c.host, c.port == client.port) for c in found])
    answer = client.find(5, key_type=2)
    client.add("find share too early", [ErrorCode(c.error_code).name for c in answer.coordinators])


def _every_version(client: GroupClient) -> None:
    for version in range(10):
        group = f"version-{version}"
        joined = client.enter(group, group, version)
        member, generation = joined.member_id, joined.generation_id
        client.sync(group, group, member, generation, min(version, 5), assign=[member])
        client.heartbeat(group, group, member, generation, min(version, 4))
        commit_version = max(2, version)
        client.commit(group, group, version, member=member, generation=generation, version=commit_version)
        for fetch_version in (max(1, version), max(2, version)):
            client.fetch(group, group, fetch_version)
        client.fetch(group, group, max(2, version), everything=True)
        client.describe(group, group, min(version, 6))
        client.leave(group, group, (member, None), version=min(version, 5))
        client.leave(group, group, (member, None), version=min(version, 5))
    for version in range(6):
        client.list_groups(f"list {version}", version)


def _two_members(client: GroupClient) -> None:
    group = "two"
    first = client.enter("first", group)
    client.describe("completing", group)
    client.commit("completing", group, 1, member=first.member_id, generation=first.generation_id)
    client.heartbeat("completing", group, first.member_id, first.generation_id)
    client.join("again the same", group, first.member_id)
    client.sync("wrong type", group, first.member_id, 1, protocol_type="connect", protocol_name="range")
    client.sync("wrong name", group, first.member_id, 1, protocol_type="consumer", protocol_name="sticky")
    client.sync("no type", group, first.member_id, 1, protocol_type=None)
    client.sync("no name", group, first.member_id, 1, protocol_name=None)
    client.sync("first", group, first.member_id, 1, assign=[first.member_id])
    client.sync("again", group, first.member_id, 1)
    client.join("wrong protocol", group, protocols=[("other", b"")])
    client.join("wrong type", group, protocol_type="connect")
    client.join("invented", group, "invented-id")
    asked = client.join("second asks", group)
    with Wire(client.port) as second:
        request = client.join_request(group, asked.member_id, 9)
        parked = second.send(ApiKey.JOIN_GROUP, 9, request)
        client.await_state(group, "PreparingRebalance")
        client.heartbeat("preparing", group, first.member_id, 1)
        client.sync("preparing", group, first.member_id, 1)
        client.describe("preparing", group)
        client.commit("preparing", group, 2, member=first.member_id, generation=1)
        client.delete_groups("preparing", group)
        leader = client.join("leader back", group, first.member_id)
        answer = second.receive(ApiKey.JOIN_GROUP, 9, parked)
        client.add_join("second", answer)
        client.commit("completing", group, 3, member=first.member_id, generation=2)
        waiting = second.send(
            ApiKey.SYNC_GROUP, 5,
            SyncGroupRequest(group_id=group, generation_id=2, member_id=answer.member_id, protocol_type="consumer",
                             protocol_name="range"),
        )  # fmt: skip
        time.sleep(0.3)
        both = [first.member_id, answer.member_id]
        client.sync("leader", group, leader.member_id, 2, assign=both, label=b"both")
        client.add("second", second.receive(ApiKey.SYNC_GROUP, 5, waiting).assignment)
        client.describe("stable", group)
        client.join("follower back", group, answer.member_id)
        for generation in (1, 2, 3):
            client.heartbeat(f"generation {generation}", group, first.member_id, generation)
            client.commit(f"generation {generation}", group, 5, member=first.member_id, generation=generation)
        client.commit("as absent", group, 6)
        client.commit("stolen", group, 6, member="stolen", generation=2)
        client.leave("second", group, (answer.member_id, None), ("absent", None))
        client.heartbeat("after leave", group, answer.member_id, 2)
        client.heartbeat("after leave", group, first.member_id, 2)
    client.join("first alone", group, first.member_id)
    client.leave("first", group, (first.member_id, None))
    client.describe("empty", group)
    client.heartbeat("empty", group, first.member_id, 4)
    client.sync("empty", group, first.member_id, 4)
    client.join("empty", group, first.member_id)
    client.commit("empty", group, 7)
    client.commit("empty, a generation", group, 7, member=first.member_id, generation=3)
    client.fetch("after all", group)


def _statics(client: GroupClient) -> None:
    group = "static"
    joined = client.join("static", group, instance="i1")
    old = joined.member_id
    client.sync("static", group, old, 1, assign=[old], instance="i1")
    for version in (5, 8, 9):
        back = client.join(f"bounce {version}", group, version=version, instance="i1")
        client.sync("bounce", group, back.member_id, 1, instance="i1")
        client.describe("bounce", group)
    client.heartbeat("fenced", group, old, 1, instance="i1")
    client.heartbeat("no instance", group, old, 1)
    client.heartbeat("unknown instance", group, old, 1, instance="i2")
    client.join("fenced", group, old, instance="i1")
    client.sync("fenced", group, old, 1, instance="i1")
    client.commit("fenced", group, 1, member=old, generation=1, instance="i1")
    client.leave("fenced", group, (old, "i1"))
    client.leave("by instance", group, ("", "i1"), ("", "i9"), version=4)
    client.describe("removed", group)


def _offsets(client: GroupClient) -> None:
    for version in range(2, 11):
        client.commit(f"simple {version}", "simple", version, version=version)
    client.commit("partition 1", "simple", 11, partition=1)
    for version in range(1, 11):
        client.fetch(f"simple {version}", "simple", version)
        client.fetch(f"absent {version}", "no such group", version)
        client.fetch(f"other topic {version}", "simple", version, topic="no-such-topic")
        if version >= 2:
            client.fetch(f"all {version}", "simple", version, everything=True)
    client.commit("no such topic", "simple", 1, topic="no-such-topic")
    client.commit("no such topic id", "simple", 1, version=10, topic_id=UUID(int=77))
    client.commit("no such partition", "simple", 1, partition=2)
    client.commit("negative partition", "simple", 1, partition=-1)
    client.commit("long note", "simple", 1, metadata="x" * 4097)
    client.commit("longest note", "simple", 1, metadata="x" * 4096)
    client.commit("no note", "simple", 1, metadata=None)
    client.fetch("no note", "simple")
    client.commit("negative", "simple", -5)
    client.fetch("negative", "simple")
    client.commit("beyond the end", "simple", 2**62)
    for version in (2, 8, 9):
        client.commit(f"no such group {version}", "absent", 1, member="m", generation=3, version=version)
    client.describe("simple", "simple")


def _administration(client: GroupClient) -> None:
    client.describe("absent", "absent", 5)
    client.describe("absent", "absent", 6)
    joined = client.enter("busy", "busy")
    client.delete_offset("not stable", "busy")
    client.sync("busy", "busy", joined.member_id, 1, assign=[joined.member_id])
    client.commit("busy", "busy", 1, member=joined.member_id, generation=1)
    client.delete_offset("subscribed", "busy")
    client.delete_offset("no such topic", "busy", "no-such-topic")
    client.delete_offset("absent", "absent")
    client.delete_offset("simple", "simple")
    client.delete_offset("simple again", "simple")
    client.fetch("one deleted", "simple")
    for version in range(3):  # Kafka 4.3 has no more
        client.delete_groups(f"delete {version}", "busy", "absent", version=version)
    for states in (["Stable"], ["stable"], ["Empty"], ["no such state"], ["Stable", "Dead"]):
        client.list_groups(f"list {states}", 5, states)
    for types in (["classic"], ["Classic"], ["consumer"]):
        client.list_groups(f"list {types}", 5, ["Stable"], types=types)
    client.delete_groups("delete", "simple", "two", "static", "simple")
    client.fetch("deleted", "simple")
    client.leave("busy", "busy", (joined.member_id, None))
    client.list_groups("list empty", 5, ["Empty"])


def _bad_input(client: GroupClient) -> None:
    client.join("no group", "")
    client.join("short session", "bad", session_ms=5999)
    client.join("long session", "bad", session_ms=1_800_001)
    client.join("no protocols", "bad", protocols=[])
    client.join("no type", "bad", protocol_type="")
    client.join("invented id", "bad", "invented")
    client.sync("no group", "", "m", 1)
    client.sync("absent", "bad", "m", 1)
    client.heartbeat("no group", "", "m", 1)
    client.heartbeat("absent", "never was", "m", 1)
    client.leave("no group", "", ("m", None))
    client.leave("absent", "never was", ("m", None))
    client.commit("no group", "", 1)
    client.fetch("no group", "")
    client.describe("no group", "")
    client.delete_groups("no group", "")
    client.delete_offset("no group", "")
    joined = client.enter("control \x00 characters \n", "control \x00\n\U0001f600")
    client.sync("garbage", "control \x00\n\U0001f600", joined.member_id, 1, assign=["no such member"])
    client.delete_offset("control", "control \x00\n\U0001f600")
