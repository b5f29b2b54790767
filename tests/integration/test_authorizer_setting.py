"""A node with `authorizer.class.name`: users who log in do what ACLs allow; the audit log has what they were denied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.test_sasl import SaslNode, settings
from tests.support.clients.api_calls import fresh_name
from tests.support.clients.cli import odradek
from tests.support.nodes.cluster import Cluster
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUDIT = '"logger": "authorizer.audit"'


def rule(
    principal: str,
    operation: AclOperation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    *,
    host: str = "*",
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


class GuardedNode(SaslNode):
    """A node whose listener for clients has SASL; on the one in plain text everybody is ANONYMOUS."""

    def __init__(self, directory: Path, **given: object) -> None:
        super().__init__(directory, **{"authorizer__class__name": AUTHORIZER, "super__users": "User:admin"} | given)

    def client_settings(self, user: str = "alice") -> dict[str, Any]:
        password = "admin-secret" if user == "admin" else "plain-secret"
        return {"bootstrap.servers": self.sasl_bootstrap, **settings("PLAIN", user, password)}

    def admin(self) -> AdminClient:
        return AdminClient(self.client_settings("admin"))

    def allow(self, *rules: AclBinding) -> None:
        for future in self.admin_client.create_acls(list(rules)).values():
            future.result(60)

    @property
    def admin_client(self) -> AdminClient:
        if not hasattr(self, "_admin"):
            self._admin = self.admin()
        return self._admin

    def create_topic(self) -> str:
        name = fresh_name()
        self.admin_client.create_topics([NewTopic(name, 1, 1)])[name].result(60)
        return name

    def audit_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_text().splitlines() if AUDIT in line]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    with GuardedNode(tmp_path_factory.mktemp("guarded")).start() as node:
        yield node


def produce(node: GuardedNode, topic: str, user: str = "alice") -> KafkaError | None:
    """Produce one record; why it was refused."""
    errors: list[KafkaError | None] = []
    producer = Producer({**node.client_settings(user), "message.timeout.ms": int(PATIENCE_S * 1000)})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    return errors[0]


def consume(node: GuardedNode, topic: str, group: str) -> bytes | KafkaError | None:
    """The first value of a topic, or why there is none."""
    consumer = Consumer({**node.client_settings(), "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        return message.error() or message.value()
    finally:
        consumer.close()


def test_a_user_writes_and_reads_once_it_is_allowed(node: GuardedNode) -> None:
    topic, group = node.create_topic(), fresh_name("g")
    refused = produce(node, topic)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    node.allow(rule("User:alice", AclOperation.WRITE, topic))
    assert produce(node, topic) is None

    unread = consume(node, topic, group)
    assert isinstance(unread, KafkaError) and unread.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    node.allow(rule("User:alice", AclOperation.READ, group, ResourceType.GROUP))
    node.allow(rule("User:alice", AclOperation.READ, topic))
    assert consume(node, topic, group) == b"v"

    node.allow(rule("User:alice", AclOperation.WRITE, topic, permission=AclPermissionType.DENY))
    refused = produce(node, topic)
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_transactional_producer_needs_its_id(node: GuardedNode) -> None:
    topic, name = node.create_topic(), fresh_name("id")
    producer = Producer({**node.client_settings(), "transactional.id": name})
    with pytest.raises(KafkaException) as error:
        producer.init_transactions(PATIENCE_S)
    assert error.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    node.allow(
        rule("User:alice", AclOperation.WRITE, name[:4], ResourceType.TRANSACTIONAL_ID, pattern=prefixed()),
        rule("User:alice", AclOperation.WRITE, topic),
    )
    producer = Producer({**node.client_settings(), "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(PATIENCE_S)


def prefixed() -> ResourcePatternType:
    return ResourcePatternType.PREFIXED


def test_an_anonymous_client_has_no_permission(node: GuardedNode) -> None:
    ran = odradek(node.bootstrap, "topics", "create", fresh_name(), code=None)
    assert ran.code and "AUTHORIZATION_FAILED" in ran.err
    assert not odradek(node.bootstrap, "topics", "list").out.strip()


def test_the_audit_log_says_who_was_denied_what_and_why(node: GuardedNode) -> None:
    topic = node.create_topic()
    assert produce(node, topic) is not None

    def lines() -> list[dict[str, Any]]:
        return [each for each in node.audit_lines() if each["resource"] == topic]

    eventually(lambda: bool(lines()))
    line = lines()[0]
    assert line | {"time": "", "api": ""} == {
        "time": "",
        "level": "WARNING",
        "logger": "authorizer.audit",
        "event": "denied",
        "principal": "User:alice",
        "host": "127.0.0.1",
        "operation": line["operation"],
        "resource_type": "TOPIC",
        "resource": topic,
        "api": "",
        "client_id": "rdkafka",
        "reason": "no acl",
        "rule": None,
    }
    denial = rule("User:alice", AclOperation.ALL, topic, permission=AclPermissionType.DENY)
    node.allow(denial)
    assert produce(node, topic) is not None
    text = f"DENY User:alice from * ALL TOPIC LITERAL {topic}"
    eventually(lambda: any(each["rule"] == text and each["reason"] == "acl" for each in lines()))
    # Allowed operations are logged only if the logger's level is DEBUG.
    assert not any(each["event"] == "allowed" for each in node.audit_lines())
    odradek_config = node.directory / "admin.properties"
    odradek_config.write_text("".join(f"{key}={value}\n" for key, value in java_settings().items()))
    odradek(
        node.sasl_bootstrap, "configs", "alter", "--entity-type", "broker-loggers", "--entity-name", "1",
        "--add-config", "odradek.authorizer.audit=DEBUG", "--command-config", odradek_config,
    )  # fmt: skip
    node.create_topic()
    eventually(lambda: any(each["event"] == "allowed" for each in node.audit_lines()))
    assert "admin-secret" not in node.log_text() and "plain-secret" not in node.log_text()


def java_settings() -> dict[str, str]:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{login} username="admin" password="admin-secret";',
    }


def test_acls_outlive_a_restart(tmp_path: Path) -> None:
    with GuardedNode(tmp_path).start() as node:
        topic = node.create_topic()
        node.allow(rule("User:alice", AclOperation.WRITE, topic))
        node.stop()
        node.start()
        assert produce(node, topic) is None
        other = node.create_topic()
        assert produce(node, other) is not None


def test_everyone_where_no_acl_is_found(tmp_path: Path) -> None:
    with GuardedNode(tmp_path, allow__everyone__if__no__acl__found="true").start() as node:
        topic, guarded = node.create_topic(), node.create_topic()
        node.allow(rule("User:bob", AclOperation.READ, guarded))
        assert produce(node, topic) is None
        assert produce(node, guarded) is not None


def test_super_users_without_an_authorizer_are_warned_about(tmp_path: Path) -> None:
    with Node(tmp_path, {"super.users": "User:admin"}) as node:
        assert "super.users has no effect without authorizer.class.name" in node.log_text()


def test_three_nodes_replicate_as_super_users(tmp_path: Path) -> None:
    given = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Cluster(tmp_path, settings=given) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        client.create_topics([NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})])["t"].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for number in range(9):
            producer.produce("t", b"v", partition=number % 3)
        assert not producer.flush(PATIENCE_S)
        cluster[1].restart()
        eventually(
            lambda: all(len(each.isrs) == 3 for each in client.list_topics("t", 60).topics["t"].partitions.values())
        )


HINT = "the principal of this node needs ClusterAction: name it in super.users of all nodes"


def test_a_node_that_is_no_super_user_learns_what_it_needs(tmp_path: Path) -> None:
    """A broker that may not read the metadata log, and two voters that do not vote for each other."""
    guards = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    with Node(tmp_path / "controller", dict(guards)) as controller:
        broker = Node(tmp_path / "broker", {"node.id": 2, "process.roles": "broker"})
        broker.overrides |= {
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller.controller_port}",
        }
        broker.launch()
        eventually(lambda: f'reason=CLUSTER_AUTHORIZATION_FAILED hint="{HINT}"' in broker.log_text())
        broker.kill()
    voters = [Node(tmp_path / str(number), {"node.id": number, **guards}) for number in (1, 2)]
    for each in voters:
        each.overrides["controller.quorum.voters"] = ",".join(
            f"{other.overrides['node.id']}@127.0.0.1:{other.controller_port}" for other in voters
        )
        each.launch()
    said = f'code=CLUSTER_AUTHORIZATION_FAILED hint="{HINT}"'
    eventually(lambda: any(said in each.log_text() for each in voters))
    for each in voters:
        each.kill()
