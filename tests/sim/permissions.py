"""The world of a guarded cluster: ACLs, SCRAM users and delegation tokens are changed while its nodes fail.

Three clients change entries of their own, one after the other, each asking once. A change that was answered is in force
on the node that answered it, at once, and in the end on every node: in what DescribeAcls, DescribeUserScramCredentials
and DescribeDelegationToken say there, in what the node's authorizer decides, and in who can log in: a user with the
last password and not with the other, a token that lives, and none that has ended. A change of which no answer came may
have happened, may not, and may happen later: its entry is left alone from then on.

In seeds that are odd, tokens are changed and clients log in; in the others there are ACLs and users alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import ClassVar, TypeVar

from odradek.client.connection import Connection
from odradek.client.login import RefusedLoginError
from odradek.client.sasl import Credentials
from odradek.common.errors import OdradekError
from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
from odradek.protocol.messages import create_acls_request, delete_acls_request, describe_acls_request
from odradek.protocol.messages.create_acls_response import CreateAclsResponse
from odradek.protocol.messages.delete_acls_response import DeleteAclsResponse
from odradek.protocol.messages.describe_acls_response import DescribeAclsResponse
from odradek.settings.formats import STANDARD_AUTHORIZER
from tests.sim import logins
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.cluster import ManyNodes
from tests.sim.one_node import PROGRESS_S, TROUBLE_S
from tests.sim.progress import progress
from tests.sim.world import Machine, World

T = TypeVar("T")
CHANGERS = 3
# Entries that a client changes at a time; one whose fate is not known gives its place to a new one.
ENTRIES = 4
PRINCIPAL = "User:alice"
RESTS_S = (0.0, 0.05, 0.2, 0.6)
# The probability that nodes that were away find the metadata log deleted, and begin at a snapshot while they run.
OFTEN_BEHIND = 0.5
SMALL_METADATA_LOG = {"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.max.retention.bytes": "3000"}


class Changer(Client):
    """Changes its own ACLs, users and tokens, and remembers what it was answered."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder, *, logs_in: bool) -> None:
        super().__init__(world, name, process, recorder)
        self.stopping = False
        self._logs_in = logs_in
        # The last acknowledged value of each, 0 for removed; the others have an unknown value.
        self.topics: dict[str, int] = {}
        self.users: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        # The tokens of `ends`, and those that have ended.
        self.tokens: dict[str, logins.Token] = {}
        self.ended: list[logins.Token] = []
        self.changes = 0
        self._made = 0
        self._kinds = [("topic", self.topics), ("user", self.users)] + [("token", self.ends)] * logs_in

    async def run(self) -> None:
        """Change one entry after the other until `stopping`."""
        while not self.stopping:
            kind, entries = self.random.choice(self._kinds)
            while len(entries) < ENTRIES:
                self._made += 1
                entries[f"{self.name}-{kind}-{self._made}"] = 0
            await self._change(kind, entries, self.random.choice(list(entries)))
            await asyncio.sleep(self.random.choice(RESTS_S))

    async def _change(self, kind: str, entries: dict[str, int], name: str) -> None:
        """Ask once; where no answer comes, forget the entry."""
        connection: Connection | None = None
        is_answered = False
        try:
            connection = await self._connection(kind)
            before = entries[name]
            number = await self._request_change(kind, connection, name, before)
            is_answered = True
            entries[name] = number
            self.changes += 1
            await self._check_answered(kind, connection, name, number)
        except OdradekError:
            if connection is not None and not is_answered:
                del entries[name]
            await asyncio.sleep(RETRY_S)
        finally:
            if kind == "token" and connection is not None:
                connection.close()

    async def _connection(self, kind: str) -> Connection:
        """One of somebody without a name; for tokens, one that has logged in."""
        if kind != "token":
            return await self.cluster.any_connection()
        brokers = [machine for machine in self.world.machines.values() if machine.is_broker]
        return await logins.log_in(self, self.random.choice(brokers).name, logins.owner(self))

    async def _request_change(self, kind: str, connection: Connection, name: str, before: int) -> int:
        """Ask for another state than the one before, and return it. Raises OdradekError."""
        if kind == "topic":
            await self._change_acl(connection, name, present=not before)
            return 1 - before
        if kind == "user":
            number = 1 - before
            if self._logs_in:
                number = self.random.choice([each for each in (0, *logins.PASSWORDS) if each != before])
            await logins.change_user(self, connection, name, number, keeps_salt=self._logs_in)
            return number
        if not before:
            self.tokens[name], ends_ms = await logins.create_token(self, connection)
            return ends_ms
        ends_ms = await logins.change_token(self, connection, self.tokens[name])
        if not ends_ms:
            self.ended.append(self.tokens[name])
        return ends_ms

    async def _check_answered(self, kind: str, connection: Connection, name: str, number: int) -> None:
        """The node that has answered says so, and lets in who may come in now. Raises OdradekError."""
        at = self.network.process_at(connection)
        if kind == "token":
            seen = await logins.end_of_token(self, connection, self.tokens[name])
            if seen != number:
                self.problem(f"{at} answered that {name} ends at {number}, and says now that it ends at {seen}")
            pairs = [(self.tokens[name].credentials(self), bool(number))]
        else:
            there = await (has_acl if kind == "topic" else logins.has_user)(self, connection, name)
            if there != bool(number):
                self.problem(f"{at} answered that {name} {_state(bool(number))}, and says now that it {_state(there)}")
            pairs = logins_of(self, name, number) if kind == "user" and self._logs_in else []
        for credentials, expected in pairs:
            allowed, process = await logins.may_log_in(self, connection.address.partition(":")[0], credentials)
            if process == at and allowed != expected:
                self.problem(f"{at} has answered, and {_login(allowed)} {name}")

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
            answer = await self.request(connection, created, CreateAclsResponse)
            logins.check_code(answer.results[0].error_code)
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
        answer = await self.request(
            connection, delete_acls_request.DeleteAclsRequest(filters=filters), DeleteAclsResponse
        )
        logins.check_code(answer.filter_results[0].error_code)


def logins_of(client: Client, name: str, number: int) -> list[tuple[Credentials, bool]]:
    """A user with each password, and whether that is the one."""
    return [(logins.user(client, name, each), each == number) for each in logins.PASSWORDS]


def _login(allowed: bool) -> str:
    return "lets in" if allowed else "does not let in"


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
    answer = await client.request(connection, request, DescribeAclsResponse)
    logins.check_code(answer.error_code)
    return bool(answer.resources)


async def _until_heard(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask a node until it answers: nothing fails any more."""
    while True:
        try:
            return await ask()
        except RefusedLoginError:
            raise
        except OdradekError:
            await asyncio.sleep(RETRY_S)


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
        # Users and tokens log in, too, in every other run.
        self._logs_in = world.seed % 2 == 1
        if self._logs_in:
            world.settings = {**logins.SASL_SETTINGS, **world.settings}
            self.more_listeners = f",EXTERNAL://{{host}}:{logins.SASL_PORT}"
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
            Changer(world, f"changer-{number}", number, self.recorder, logs_in=self._logs_in)
            for number in range(1, CHANGERS + 1)
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
                    await self._check_node(machine, auditor)
        for client in [*self._changers, auditor]:
            self.recorder.problems += [f"{client.name}: {text}" for text in client.network.violations()]

    async def _check_node(self, machine: Machine, auditor: Client) -> None:
        """Check that a node describes, authorizes and authenticates by the last acknowledged changes."""
        for changer in self._changers:
            await self._check_entries(machine, auditor, changer)
            if self._logs_in:
                await self._check_tokens(machine, auditor, changer)

    async def _check_entries(self, machine: Machine, auditor: Client, changer: Changer) -> None:
        assert machine.broker is not None and machine.broker.services.authorizer is not None
        for name, number in changer.topics.items():
            may = machine.broker.services.authorizer.authorize(
                PRINCIPAL, "10.0.0.1", int(AclOperation.READ), int(AclResourceType.TOPIC), name
            )
            if may != bool(number):
                self.recorder.problems.append(f"{machine.name} decides as if the ACL of {name} {_state(may)}")
            await self._compare(machine, auditor, has_acl, name, bool(number))
        for name, number in changer.users.items():
            await self._compare(machine, auditor, logins.has_user, name, bool(number))
            for credentials, expected in logins_of(auditor, name, number) if self._logs_in else ():
                await self._log_in(machine, auditor, credentials, expected)

    async def _check_tokens(self, machine: Machine, auditor: Client, changer: Changer) -> None:
        connection = await _until_heard(lambda: logins.log_in(auditor, machine.name, logins.owner(auditor)))
        try:
            for name, number in changer.ends.items():
                if name in changer.tokens:
                    token = changer.tokens[name]
                    seen = await _until_heard(partial(logins.end_of_token, auditor, connection, token))
                    if seen != number:
                        text = f"{machine.name} says that {name} ends at {seen}, and it was answered that at {number}"
                        self.recorder.problems.append(text)
                    await self._log_in(machine, auditor, token.credentials(auditor), bool(number))
        finally:
            connection.close()
        for token in changer.ended[-ENTRIES:]:
            await self._log_in(machine, auditor, token.credentials(auditor), False)

    async def _log_in(self, machine: Machine, auditor: Client, credentials: Credentials, expected: bool) -> None:
        allowed, _ = await _until_heard(lambda: logins.may_log_in(auditor, machine.name, credentials))
        if allowed != expected:
            self.recorder.problems.append(f"{machine.name} {_login(allowed)} {credentials.username}")

    async def _compare(
        self,
        machine: Machine,
        auditor: Client,
        ask: Callable[[Client, Connection, str], Awaitable[bool]],
        name: str,
        present: bool,
    ) -> None:
        async def asked() -> bool:
            await auditor.cluster.metadata()
            return await ask(auditor, await auditor.cluster.connection_to(machine.node_id), name)

        seen = await _until_heard(asked)
        if seen != present:
            text = f"{machine.name} says that {name} {_state(seen)}, and was answered that it {_state(present)}"
            self.recorder.problems.append(text)

    def _verdict(self) -> None:
        self.recorder.problems += self.check_logs()
