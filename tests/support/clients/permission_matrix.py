"""Each API x each set of permissions x each version: the errors, the listed resources and operations, as lines of text.

The same requests go to our node and to Apache Kafka; the matrix compares the error of each resource for each client,
the resources that a response lists at all, and the authorized operations. `permissions_of_kafka.txt` has the lines of
Apache Kafka; `python -m tests.support.clients.permission_matrix` writes them again.

In each request "x" is a resource with all permissions for the client `some`, "y" one that exists without permissions
for it, and "z" one that does not exist: lists name all three.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from odradek.common.errors import ErrorCode
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType, PatternType, PermissionType
from odradek.protocol.apis import ApiKey
from odradek.protocol.declare import Message
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from odradek.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from odradek.server.handlers import HANDLERS
from tests.support.clients.api_calls import Calls
from tests.support.clients.matrix_requests import MISSING_ID, asked_of
from tests.support.clients.needed_operations import commit_of
from tests.support.nodes.apache_kafka import ApacheKafka
from tests.support.nodes.node import Node, accepts, free_port
from tests.support.waiting import eventually

NAMES = ("x", "y", "z")
Kind = AclResourceType
# Everything of each kind, for entries of those who may do something to all.
EVERYTHING = (
    (Kind.TOPIC, "*"),
    (Kind.GROUP, "*"),
    (Kind.TRANSACTIONAL_ID, "*"),
    (Kind.CLUSTER, CLUSTER_NAME),
)
TOKENS, USERS = (Kind.DELEGATION_TOKEN, "*"), (Kind.USER, "*")
MINE = (
    (Kind.TOPIC, "x"),
    (Kind.GROUP, "x"),
    (Kind.GROUP, "joined"),
    (Kind.TRANSACTIONAL_ID, "x"),
)
PRINCIPALS: Mapping[str, tuple[tuple[AclOperation, AclResourceType, str], ...]] = {
    "nothing": (),
    "describe": tuple((AclOperation.DESCRIBE, *each) for each in (*EVERYTHING, TOKENS)),
    "some": tuple((AclOperation.ALL, *each) for each in MINE),
    "all": tuple((AclOperation.ALL, *each) for each in (*EVERYTHING, TOKENS, USERS)),
}
ADMIN = "admin"
PASSWORD = "secret"
RECORDED = Path(__file__).with_name("permissions_of_kafka.txt")
JAAS = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{ADMIN}" password="{PASSWORD}" '
    + " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, *PRINCIPALS))
    + ";"
)
# Requests that every client may send; they begin another login after a first one.
LOGIN = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
# Asked last and in this order, with all that they take away made again before each.
DESTROYING = (ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS, ApiKey.DELETE_TOPICS)
# Fields that name the resource of a response; of the other fields only errors and operations are compared.
SAID = {
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "transactional_id",
    "resource_name",
    "resource_type",
    "key",
    "partition_index",
    "partition",
    "index",
    "partition_id",
    "user",
    "entity_type",
    "entity_name",
    "principal",
    "principal_name",
    "token_requester_principal_name",
    "num_partitions",
    "replication_factor",
}
# Each node's own, or a matter of time: that there is something is all that is compared.
OWN = {"assignment", "configs", "api_keys", "supported_features", "finalized_features", "nodes", "brokers", "voters"}
NO_OPERATIONS = -(2**31)


def security_settings(port: int, controller_port: int, plain_port: int) -> dict[str, object]:
    """A node with logins by name on both listeners, and an authorizer; inside it speaks plain text."""
    external, controller = "listener.name.external.", "listener.name.controller."
    return {
        "listeners": (
            f"EXTERNAL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},PLAINTEXT://127.0.0.1:{plain_port}"
        ),
        "advertised.listeners": f"EXTERNAL://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plain_port}",
        "listener.security.protocol.map": ("EXTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"{external}sasl.enabled.mechanisms": "PLAIN",
        f"{external}plain.sasl.jaas.config": JAAS,
        f"{controller}sasl.enabled.mechanisms": "PLAIN",
        f"{controller}plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": "a-secret-key-of-a-test",
        "auto.create.topics.enable": "false",
        "log.retention.hours": 1,
    }


def login(port: int, name: str) -> Calls:
    """A connection that has logged in; the caller closes it."""
    calls = Calls(port)
    try:
        calls.request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        words = f"\0{name}\0{PASSWORD}".encode()
        answer = calls.request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=words))
        assert not answer.error_code, answer
    except BaseException:
        calls.close()
        raise
    return calls


@dataclass
class Matrix:
    """The requests to one node, and its responses.

    Args:
        ports: the ports of its listeners for clients ("broker") and for controllers ("controller"), both with logins.
    """

    ports: Mapping[str, int]
    ids: dict[str, UUID] = field(default_factory=dict)
    token_count: int = 0

    def lines(self) -> Iterator[str]:
        """The served APIs, then a line for each API, listener and principal; versions with equal answers share one."""
        for listener, keys in self.advertised().items():
            yield f"served {listener}: {' '.join(ApiKey(key).name for key in sorted(keys))}"
        with ExitStack() as self._open:
            self._admin = self._open.enter_context(login(self.ports["broker"], ADMIN))
            self._clients: dict[tuple[str, str], Calls] = {}
            self._prepare()
            for api_key, listener, first, last in self._apis():
                for principal in PRINCIPALS:
                    versions = range(first, last + 1)
                    answers = [(each, self._answers(listener, principal, api_key, each)) for each in versions]
                    yield from _rows(f"{api_key.name} {listener} {principal}", answers)

    def advertised(self) -> Mapping[str, Mapping[int, tuple[int, int]]]:
        """First and last version of each API, by listener."""
        found = {}
        for listener, port in self.ports.items():
            with Calls(port) as calls:
                keys = calls.request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).api_keys
                found[listener] = {each.api_key: (each.min_version, each.max_version) for each in keys}
        return found

    def _apis(self) -> Iterator[tuple[ApiKey, str, int, int]]:
        advertised = self.advertised()
        rows = [(each, listener) for each in HANDLERS for listener in sorted(each.listeners)]
        last = dict(zip(DESTROYING, itertools.count(1)))
        for handler, listener in sorted(rows, key=lambda row: last.get(row[0].api_key, 0)):
            versions = advertised[listener].get(handler.api_key)
            if handler.api_key not in LOGIN and versions is not None:
                first, latest = max(handler.min_version, versions[0]), min(handler.max_version, versions[1])
                yield handler.api_key, listener, first, latest

    def _prepare(self) -> None:
        creations = [
            AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal=f"User:{principal}",
                host="*",
                operation=operation,
                permission_type=PermissionType.ALLOW,
            )
            for principal, entries in PRINCIPALS.items()
            for operation, kind, name in entries
        ]
        answer = self._admin.request(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=creations))
        assert not any(each.error_code for each in answer.results), answer
        self._restore()
        for name in ("x", "y"):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            found = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
            self._admin.request_until_loaded(ApiKey.FIND_COORDINATOR, 4, found)
            self._admin.request_until_loaded(ApiKey.INIT_PRODUCER_ID, 4, request)
        # The ACLs are in force once the listing of a client with all permissions has them.
        calls = self._client("broker", "all")
        eventually(
            lambda: (
                {"x", "y"}
                <= {each.name for each in calls.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, _EVERY_TOPIC).topics}
            )
        )

    def _restore(self) -> None:
        """Make what a request may have taken away: topics, and offsets of groups."""
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("x", "y")]
        # The controller knows what is gone before a broker does.
        answer = self._admin.request(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        self.ids |= {each.name: each.topic_id for each in answer.topics if not each.error_code}
        for name in ("x", "y"):
            eventually(lambda name=name: self._admin.topic_id(name) == self.ids[name])
            self._admin.wait_for_leaders(name, 2)
        for group, topic in itertools.product(("x", "y"), repeat=2):
            self._admin.find_coordinator(group)
            self._admin.request_until_loaded(ApiKey.OFFSET_COMMIT, 8, commit_of(group, topic))
        self.ids["z"] = MISSING_ID

    def _client(self, listener: str, principal: str) -> Calls:
        if (listener, principal) not in self._clients:
            self._clients[listener, principal] = self._open.enter_context(login(self.ports[listener], principal))
        return self._clients[listener, principal]

    def _answers(self, listener: str, principal: str, api_key: ApiKey, version: int) -> str:
        said = []
        for number in range(len(self._requests(listener, api_key, version))):
            if api_key in DESTROYING:
                self._restore()
            if api_key == ApiKey.DESCRIBE_DELEGATION_TOKEN:
                eventually(self._sees_all_tokens)
            request = self._requests(listener, api_key, version)[number]
            said.append(self._answer(listener, principal, api_key, version, request))
        return " | ".join(said)

    def _sees_all_tokens(self) -> bool:
        """A broker hears of a token after the controller has answered."""
        everything = DescribeDelegationTokenRequest(owners=None)
        return len(self._admin.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, 2, everything).tokens) == self.token_count

    def _requests(self, listener: str, api_key: ApiKey, version: int) -> list[Any]:
        return [
            each
            for given in asked_of(api_key, listener, version, self.ids["x"])
            for each in widened_requests(given, self.ids)
        ]

    def _answer(self, listener: str, principal: str, api_key: ApiKey, version: int, request: Any) -> str:
        calls = self._client(listener, principal)
        try:
            answer = calls.request_until_loaded(api_key, version, request)
        except ConnectionError:
            self._clients.pop((listener, principal))
            return "closed"
        if api_key == ApiKey.CREATE_DELEGATION_TOKEN and not answer.error_code:
            self.token_count += 1
        known = {value: name for name, value in self.ids.items()}
        return summary(answer, known) or "-"


_EVERY_TOPIC = DescribeTopicPartitionsRequest()


def _rows(title: str, answers: list[tuple[int, str]]) -> Iterator[str]:
    for said, group in itertools.groupby(answers, key=lambda each: each[1]):
        versions = [version for version, _ in group]
        yield f"{title} {versions[0]}-{versions[-1]}: {said}"


# ---- requests that name x, for all three


def widened_requests(request: Message, ids: Mapping[str, UUID]) -> list[Message]:
    """The request for each of the names where it names one thing, with all three in each of its lists."""
    found: list[Message] = []
    for name in NAMES:
        each = _widened(request, name, ids)
        if each not in found:
            found.append(each)
    return found


def _widened(value: Any, name: str, ids: Mapping[str, UUID]) -> Any:
    if isinstance(value, list):
        return [_widened(each, other, ids) for each in value for other in (NAMES if _names_x(each, ids) else (name,))]
    if isinstance(value, Message):
        fields = {spec.name: _widened(getattr(value, spec.name), name, ids) for spec in type(value).FIELDS}
        return type(value)(**fields)
    return ids[name] if value == ids["x"] else name if value == "x" else value


def _names_x(value: Any, ids: Mapping[str, UUID]) -> bool:
    if isinstance(value, Message):
        values = [getattr(value, spec.name) for spec in type(value).FIELDS]
        return any(_names_x(each, ids) for each in values if not isinstance(each, list | Message))
    return value in ("x", ids["x"])


# ---- answers as text


def summary(message: Message, known: Mapping[UUID, str]) -> str:
    """The compared parts of a response: errors except NONE, authorized operations, and resources; lists in order."""
    said = []
    for spec in type(message).FIELDS:
        value = getattr(message, spec.name)
        if isinstance(value, list):
            said += _of_list(spec.name, value, known)
        elif isinstance(value, Message):
            inner = "" if spec.name in OWN else summary(value, known)
            said += [f"{spec.name}({inner})"] if inner else []
        else:
            said += _of_scalar(spec.name, value, known)
    return " ".join(said)


def _of_list(name: str, values: list[Any], known: Mapping[UUID, str]) -> list[str]:
    if not values:
        return []
    if name in OWN:
        return [f"{name}(...)"]
    texts = [summary(each, known) if isinstance(each, Message) else "" for each in values]
    return [f"{name}[{', '.join(sorted(set(texts) - {''}))}]"] if any(texts) else []


def _of_scalar(name: str, value: Any, known: Mapping[UUID, str]) -> list[str]:
    if name.endswith("error_code"):
        return [ErrorCode(value).name] if value else []
    if name.endswith("authorized_operations"):
        return [] if value == NO_OPERATIONS else [f"may={_operations(value)}"]
    if name not in SAID or value in (None, ""):
        return []
    if isinstance(value, UUID):
        return [] if value.int == 0 else [f"id:{known.get(value, 'other')}"]
    return [str(value)]


def _operations(bits: int) -> str:
    return "+".join(each.name for each in AclOperation if bits >> each & 1) or "nothing"


# ---- two kinds of nodes, and the stored lines of one of them


def secure(node: Node | ApacheKafka) -> dict[str, int]:
    """Give a node that does not run yet logins and an authorizer; returns the ports, by kind of listener."""
    port = free_port()
    settings = node.settings if isinstance(node, ApacheKafka) else node.overrides
    settings.update(security_settings(port, node.controller_port, node.port))
    return {"broker": port, "controller": node.controller_port}


def matrix_of(node: Node | ApacheKafka) -> list[str]:
    """Start a node that does not run yet with logins and an authorizer, ask it everything, and stop it."""
    ports = secure(node)
    with node:
        eventually(lambda: accepts(ports["broker"]))
        return list(Matrix(ports).lines())


def recorded() -> list[str]:
    """The lines of the last run against Apache Kafka."""
    return RECORDED.read_text().splitlines()


def by_version(lines: Iterable[str]) -> dict[str, str]:
    """The answer to each API, listener, principal and version."""
    found: dict[str, str] = {}
    for line in lines:
        title, _, said = line.partition(": ")
        name, _, versions = title.rpartition(" ")
        if not title.startswith("served "):
            first, last = map(int, versions.split("-"))
            found |= {f"{name} {version}": said for version in range(first, last + 1)}
    return found


def served(lines: Iterable[str], listener: str) -> set[str]:
    """The APIs that a node advertises."""
    (line,) = (each for each in lines if each.startswith(f"served {listener}: "))
    return set(line.partition(": ")[2].split())


if __name__ == "__main__":  # asks Apache Kafka again, and writes down what it says
    with tempfile.TemporaryDirectory() as directory:
        RECORDED.write_text("\n".join(matrix_of(ApacheKafka(Path(directory)))) + "\n")
