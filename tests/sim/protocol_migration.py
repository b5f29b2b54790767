"""Copiers that speak one protocol of groups in one life, and maybe the other in the next.

So their group is one of the classic protocol, one of the consumer protocol (KIP-848), or one with members of both, and
is converted while members are live, back and forth, at whatever moment somebody joins, leaves, dies or is given up. A
member of the classic protocol is an eager one: when it has to join again it gives up all that it has.
"""

from __future__ import annotations

from typing import Any

from odradek.client.cluster import check
from odradek.client.connection import Connection
from odradek.client.groups import decode_assignment
from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages import join_group_request, sync_group_request
from odradek.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from tests.sim.consumers import JOINING, Copier, Ownership
from tests.sim.members import CONSUMER, PARKED_S, PROTOCOL, SUBSCRIPTION_VERSION, framed
from tests.sim.world import World

SESSION_MS, REBALANCE_MS = 2_000, 3_000
# Errors with which a member joins the next generation, under its member id.
JOIN_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


class RolledOwnership(Ownership):
    """The owners of partitions by the members' own view, of members that the coordinator surely still has.

    A group whose last member goes and that starts again under the other protocol counts its epochs from the start, so
    that owners of the same epoch are two only where both are members at once.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._asking_s: dict[str, float] = {}
        self._lived_s: dict[str, float] = {}
        self._unpublished: dict[str, tuple[int, list[tuple[str, int]]]] = {}

    def asks(self, member: str) -> None:
        """A member is about to send what says that it lives."""
        self._asking_s[copier_of(member)] = self._world.loop.time()

    def heard(self, member: str) -> None:
        """The coordinator took it: it knows that the member lived when that was sent."""
        name = copier_of(member)
        self._lived_s[name] = self._asking_s[name]

    def gave_up(self, member: str) -> None:
        """Let a member own nothing, even if it gets an assignment later."""
        self._unpublished.pop(copier_of(member), None)

    def assigned(self, member: str, epoch: int, owned: list[tuple[str, int]]) -> list[str]:
        name = copier_of(member)
        self.heard(member)
        self._unpublished[name] = (epoch, list(owned))
        if not self._is_surely_in(name):
            return []
        return [
            f"{key[0]}-{key[1]} belongs to {other} and to {member} in epoch {epoch}"
            for other, (its_epoch, its_own) in self._unpublished.items()
            if other != name and its_epoch == epoch and self._is_surely_in(other)
            for key in owned
            if key in its_own
        ]

    def _is_surely_in(self, name: str) -> bool:
        return (self._world.loop.time() - self._lived_s[name]) * 1000 < SESSION_MS * 3 / 4


def copier_of(member: str) -> str:
    """The name of the copier that has a member id."""
    return "-".join(member.split("-")[:2])


class RolledCopier(Copier):
    """One copier; see the module's head."""

    def __init__(self, *arguments: Any, ownership: RolledOwnership, **settings: Any) -> None:
        super().__init__(*arguments, ownership=ownership, **settings)
        self._beliefs = ownership
        self._is_classic = self.random.random() < 0.5
        self._classic_id = ""

    def _give_up(self) -> None:
        self._drop()
        self._classic_id = ""
        self._is_classic = self.random.random() < 0.5

    def _drop(self) -> None:
        super()._give_up()
        self._beliefs.gave_up(self.name)

    async def _heartbeat(self) -> None:
        self._beliefs.asks(self.name)
        if not self._is_classic:
            await super()._heartbeat()
            return
        connection = await self._coordinator(self._group, 0)
        if self._epoch != JOINING:
            request = HeartbeatRequest(group_id=self._group, generation_id=self._epoch, member_id=self._classic_id)
            answer = await self._answer(connection, request, HeartbeatResponse, 4)
            self._last_heartbeat_s = self.world.loop.time()
            if answer.error_code not in JOIN_AGAIN:
                check(answer.error_code, self._group)
                self._beliefs.heard(self.name)
                return
            self._drop()
        try:
            await self._join(connection)
        except ApiError as error:
            if error.code in JOIN_AGAIN:
                self._drop()
            raise

    async def _leave(self) -> None:
        if not self._is_classic:
            await super()._leave()
            return
        identity = MemberIdentity(member_id=self._classic_id)
        self._give_up()
        if identity.member_id:
            connection = await self._coordinator(self._group, 0)
            request = LeaveGroupRequest(group_id=self._group, members=[identity])
            await self._answer(connection, request, LeaveGroupResponse, 5)

    # -- the classic protocol -----------------------------------------------------------------------------------------

    async def _join(self, connection: Connection) -> None:
        """JoinGroup and SyncGroup. Raises OdradekError."""
        subscription = framed(ConsumerProtocolSubscription(topics=[self._source]), SUBSCRIPTION_VERSION)
        request = join_group_request.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._classic_id,
            protocol_type=CONSUMER,
            protocols=[join_group_request.JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription)],
        )
        joined = await self._park(connection, request, JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._classic_id = request.member_id = joined.member_id
            joined = await self._park(connection, request, JoinGroupResponse)
        check(joined.error_code, self._group)
        self._classic_id = joined.member_id
        leads = joined.leader == joined.member_id and not joined.skip_assignment
        asked = sync_group_request.SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=CONSUMER,
            protocol_name=PROTOCOL,
            assignments=self._assignments(joined) if leads else [],
        )
        self._beliefs.asks(self.name)
        synced = await self._park(connection, asked, SyncGroupResponse)
        check(synced.error_code, self._group)
        self._member_id, self._epoch = self._classic_id, joined.generation_id
        self._last_heartbeat_s = self.world.loop.time()
        self._owned = sorted(decode_assignment(synced.assignment))
        self._to_fetch = True
        self.world.report(f"{self.name}, classic, has {self._owned} in generation {self._epoch}")
        self.world.count("classic copier joined" if joined.leader else "classic copier joined a consumer group")
        for wrong in self._ownership.assigned(self._member_id, self._epoch, self._owned):
            self.problem(wrong)

    async def _park(self, connection: Connection, request: Any, response: Any) -> Any:
        return await self.request(connection, request, response, timeout_s=PARKED_S)

    def _assignments(self, joined: JoinGroupResponse) -> list[sync_group_request.SyncGroupRequestAssignment]:
        members = [each.member_id for each in joined.members]
        self.random.shuffle(members)
        assignments = []
        for index, member_id in enumerate(members):
            numbers = list(range(index, self._partitions, len(members)))
            owned = [TopicPartition(topic=self._source, partitions=numbers)] if numbers else []
            message = framed(ConsumerProtocolAssignment(assigned_partitions=owned), SUBSCRIPTION_VERSION)
            assignments.append(sync_group_request.SyncGroupRequestAssignment(member_id=member_id, assignment=message))
        return assignments
