"""The world of a guarded cluster: ACLs and SCRAM credentials are changed while its nodes fail.

Three clients change entries of their own, one after the other, each asking once. A change that was answered is in force
on the node that answered it, at once, and in the end on every node: in what DescribeAcls and
DescribeUserScramCredentials say there, and in what the node's authorizer decides. A change of which no answer came may
have happened, may not, and may happen later: its entry is left alone from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar

from odradek.client.connection import Connection
from odradek.common.errors import ErrorCode, OdradekError
from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.protocol.messages import (
    alter_user_scram_credentials_request as alter_users,
)
from odradek.protocol.messages import (
    create_acls_request,
    delete_acls_request,
    describe_acls_request,
    describe_user_scram_credentials_request,
)
from odradek.protocol.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.protocol.messages.describe_acls_response import DescribeAclsResponse
from odradek.protocol.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from odradek.settings.formats import STANDARD_AUTHORIZER
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.one_node import PROGRESS_S, TROUBLE_S
from tests.sim.progress import progress
from tests.sim.world import Machine, World

CHANGERS = 3
# Entries that a client changes at a time; one whose fate is not known gives its place to a new one.
ENTRIES = 4
PRINCIPAL = "User:alice"
RESTS_S = (0.0, 0.05, 0.2, 0.6)
SCRAM_SHA_256 = 1
ITERATIONS = 4096
SALTED_PASSWORD = bytes(32)
# How often nodes that were away find the metadata log gone, and begin at a snapshot while they run.
OFTEN_BEHIND = 0.5
SMALL_METADATA_LOG = {"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.max.retention.bytes": "3000"}
# What DescribeUserScramCredentials says of a user without any.
NO_CREDENTIALS = ErrorCode.RESOURCE_NOT_FOUND


class Changer(Client):
    """Adds and removes its own ACLs and users, and remembers what it was answered."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.stopping = False
        # Whether each is there, as it was answered last; of those that are not among them nothing is known.
        self.topics: dict[str, bool] = {}
        self.users: dict[str, bool] = {}
        self.changes = 0
        self._made = 0

    async def run(self) -> None:
        """Change one entry after the other until `stopping`."""
        while not self.stopping:
            kind, entries = self.random.choice((("topic", self.topics), ("user", self.users)))
            while len(entries) < ENTRIES:
                self._made += 1
                entries[f"{self.name}-{kind}-{self._made}"] = False
            name = self.random.choice(list(entries))
            await self._change(kind, entries, name, present=not entries[name])
            await asyncio.sleep(self.random.choice(RESTS_S))

    async def _change(self, kind: str, entries: dict[str, bool], name: str, *, present: bool) -> None:
        """Ask once; where no answer comes, forget the entry."""
        was_sent = False
        try:
            connection = await self.cluster.any_connection()
            was_sent = True
            await (self._change_acl if kind == "topic" else self._change_user)(connection, name, present=present)
            entries[name] = present
            self.changes += 1
            seen = await (has_acl if kind == "topic" else has_user)(self, connection, name)
            if seen != present:
                at = self.network.process_at(connection)
                self.problem(f"{at} answered that {name} {_state(present)}, and says now that it {_state(seen)}")
        except OdradekError:
            if was_sent and entries[name] != present:
                del entries[name]
            await asyncio.sleep(RETRY_S)

    async def _change_acl(self, connection: Connection, name: str, *, present: bool) -> None:
        if present:
            creation = create_acls_request.AclCreation(
                resource_type=AclResourceType.TOPIC,
                resource_name=name,
                principal=PRINCIPAL,
                host="*",
                operation=AclOperation.READ,
                permission_type=PermissionType.ALLOW,
            )
            created = create_acls_request.CreateAclsRequest(creations=[creation])
            answer = await self.ask(connection, created, CreateAclsResponse)
            _check(answer.results[0].error_code)
            return
        filters = [
            delete_acls_request.DeleteAclsFilter(
                resource_type_filter=AclResourceType.TOPIC,
                resource_name_filter=name,
                principal_filter=PRINCIPAL,
                host_filter=None,
                operation=AclOperation.ANY,
                permission_type=PermissionType.ANY,
            )
        ]
        answer = await self.ask(connection, delete_acls_request.DeleteAclsRequest(filters=filters), DeleteAclsResponse)
        _check(answer.filter_results[0].error_code)

    async def _change_user(self, connection: Connection, name: str, *, present: bool) -> None:
        request = alter_users.AlterUserScramCredentialsRequest()
        if present:
            request.upsertions = [
                alter_users.ScramCredentialUpsertion(
                    name=name,
                    mechanism=SCRAM_SHA_256,
                    iterations=ITERATIONS,
                    salt=self.random.randbytes(16),
                    salted_password=SALTED_PASSWORD,
                )
            ]
        else:
            request.deletions = [alter_users.ScramCredentialDeletion(name=name, mechanism=SCRAM_SHA_256)]
        answer = await self.ask(connection, request, AlterUserScramCredentialsResponse)
        _check(answer.results[0].error_code)


def _check(code: int) -> None:
    """
    Raises:
        OdradekError: it was refused, or its outcome is not known.
    """
    if code:
        raise OdradekError(ErrorCode(code).name)


def _state(present: bool) -> str:
    return "is there" if present else "is not there"


async def has_acl(client: Client, connection: Connection, name: str) -> bool:
    """Whether a node says that there is the ACL of a topic. Raises OdradekError."""
    request = describe_acls_request.DescribeAclsRequest(
        resource_type_filter=AclResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=PRINCIPAL,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    answer = await client.ask(connection, request, DescribeAclsResponse)
    _check(answer.error_code)
    return bool(answer.resources)


async def has_user(client: Client, connection: Connection, name: str) -> bool:
    """Whether a node says that a user can log in. Raises OdradekError."""
    named = [describe_user_scram_credentials_request.UserName(name=name)]
    request = describe_user_scram_credentials_request.DescribeUserScramCredentialsRequest(users=named)
    answer = await client.ask(connection, request, DescribeUserScramCredentialsResponse)
    _check(answer.error_code)
    (found,) = answer.results
    if found.error_code not in (ErrorCode.NONE, NO_CREDENTIALS):
        _check(found.error_code)
    return bool(found.credential_infos)


class GuardedCluster(ManyNodes):
    """One run."""

    world_name = "permissions"
    salt = 0xAC15
    settings: ClassVar[dict[str, str]] = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        # Nodes and these clients; the permissions that are looked at are another user's.
        "super.users": "User:ANONYMOUS",
    }

    def __init__(self, world: World) -> None:
        super().__init__(world)
        if self.random.random() < OFTEN_BEHIND:
            world.settings = {**SMALL_METADATA_LOG, **world.settings}
        self._changers: list[Changer] = []

    @property
    def operations(self) -> int:
        return sum(changer.changes for changer in self._changers)

    async def _run(self) -> None:
        world = self.world
        self.add_machines()
        for machine in world.machines.values():
            machine.start()
        self._changers = [
            Changer(world, f"changer-{number}", number, self.recorder) for number in range(1, CHANGERS + 1)
        ]
        tasks = [world.loop.spawn(each.name, each.run(), name=each.name) for each in self._changers]
        await world.make_trouble(self.random.uniform(*TROUBLE_S))
        world.heal()
        for each in self._changers:
            each.stopping = True
        auditor = Client(world, "auditor", 9, self.recorder)

        def who_waits() -> str:
            waiting = [each.name for each, task in zip(self._changers, tasks, strict=True) if not task.done()]
            return f"waiting: {waiting + self.unfinished()}"

        async with progress(world.loop, PROGRESS_S, who_waits, self.recorder.problems):
            await asyncio.gather(*tasks)
            await self.converge()
            for machine in world.machines.values():
                if machine.is_broker:
                    await self._look_at(machine, auditor)
        for client in [*self._changers, auditor]:
            self.recorder.problems += [f"{client.name}: {text}" for text in client.network.violations()]

    async def _look_at(self, machine: Machine, auditor: Client) -> None:
        """What a node says, and decides, is what was answered last."""
        broker = machine.broker
        assert broker is not None and broker.services.authorizer is not None
        for changer in self._changers:
            for name, present in changer.topics.items():
                may = broker.services.authorizer.authorize(
                    PRINCIPAL, "10.0.0.1", int(AclOperation.READ), int(AclResourceType.TOPIC), name
                )
                if may != present:
                    self.recorder.problems.append(f"{machine.name} decides as if the ACL of {name} {_state(may)}")
                await self._compare(machine, auditor, has_acl, name, present)
            for name, present in changer.users.items():
                await self._compare(machine, auditor, has_user, name, present)

    async def _compare(
        self,
        machine: Machine,
        auditor: Client,
        ask: Callable[[Client, Connection, str], Awaitable[bool]],
        name: str,
        present: bool,
    ) -> None:
        while True:
            try:
                await auditor.cluster.metadata()
                seen = await ask(auditor, await auditor.cluster.connection_to(machine.node_id), name)
                break
            except OdradekError:
                await asyncio.sleep(RETRY_S)
        if seen != present:
            text = f"{machine.name} says that {name} {_state(seen)}, and was answered that it {_state(present)}"
            self.recorder.problems.append(text)

    def _verdict(self) -> None:
        self.recorder.problems += self.check_logs()
