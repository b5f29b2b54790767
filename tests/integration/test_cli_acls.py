"""`odradek acls` on a node with an authorizer: an added ACL is listed, is applied, and can be removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cli import errors
from tests.integration.test_authorizer_setting import AUTHORIZER, GuardedNode, java_settings, produce
from tests.support.clients.api_calls import fresh_name
from tests.support.clients.cli import Ran, asked_on_terminal, odradek
from tests.support.nodes.node import Node
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    with GuardedNode(tmp_path_factory.mktemp("acls")).start() as node:
        settings = "".join(f"{key}={value}\n" for key, value in java_settings().items())
        config_of(node).write_text(settings)
        yield node


def config_of(node: GuardedNode) -> Path:
    return node.directory / "admin.properties"


def acls(node: GuardedNode, *words: object, code: int | None = errors.OK) -> Ran:
    return odradek(node.sasl_bootstrap, "acls", *words, "--command-config", config_of(node), code=code)


def listed(node: GuardedNode, *words: object) -> list[tuple[str, ...]]:
    found: Any = acls(node, "list", *words, "--json").json
    return [tuple(each.values()) for each in found]


def test_added_acls_are_listed_and_removed(node: GuardedNode) -> None:
    topic, group = fresh_name(), fresh_name("g")
    said = acls(node, "add", "--allow-principal", "User:bob", "--operation", "read", "-t", topic, "--group", group).out
    assert said.splitlines() == [
        f"added: ALLOW User:bob from * READ TOPIC LITERAL {topic}",
        f"added: ALLOW User:bob from * READ GROUP LITERAL {group}",
    ]
    acls(node, "add", "--deny-principal", "User:*", "--host", "10.0.0.0/8", "--operation", "ALL", "-t", topic)
    acls(node, "add", "--allow-principal", "User:eve", "--operation", "WRITE", "-t", topic[:3], "--prefixed")
    rows = [
        ("DENY", "User:*", "10.0.0.0/8", "ALL", "TOPIC", "LITERAL", topic),
        ("ALLOW", "User:bob", "*", "READ", "TOPIC", "LITERAL", topic),
    ]
    prefix = ("ALLOW", "User:eve", "*", "WRITE", "TOPIC", "PREFIXED", topic[:3])
    assert sorted(listed(node, "--topic", topic)) == sorted([*rows, prefix])
    of_group = ("ALLOW", "User:bob", "*", "READ", "GROUP", "LITERAL", group)
    assert sorted(listed(node, "--principal", "User:bob")) == sorted([rows[1], of_group])
    table = acls(node, "list", "--group", group).out.splitlines()
    assert table[0].split() == ["PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "PATTERN", "NAME"]
    assert table[1].split() == list(of_group)

    acls(node, "remove", "--topic", topic, "--deny-principal", "User:*")
    assert sorted(listed(node, "--topic", topic)) == sorted([rows[1], prefix])
    acls(node, "remove", "--topic", topic[:3], "--prefixed")
    acls(node, "remove", "--allow-principal", "User:bob", "--force")
    assert listed(node, "--topic", topic) == listed(node, "--group", group) == []
    gone = acls(node, "remove", "--topic", topic, code=errors.NOT_FOUND)
    assert "there is no such ACL; `odradek acls list` shows those that there are" in gone.err


def test_options_for_producers_and_consumers_add_their_acls(node: GuardedNode) -> None:
    topic = node.create_topic()
    assert produce(node, topic) is not None
    acls(node, "add", "--allow-principal", "User:alice", "--producer", "-t", topic, "--transactional-id", "x")
    assert produce(node, topic) is None
    found = {(row[3], row[4], row[6]) for row in listed(node, "--principal", "User:alice", "--topic", topic)}
    assert found == {(name, "TOPIC", topic) for name in ("WRITE", "DESCRIBE", "CREATE")}
    assert {row[3] for row in listed(node, "--transactional-id", "x")} == {"WRITE", "DESCRIBE"}
    acls(node, "add", "--allow-principal", "User:alice", "--consumer", "-t", topic, "--group", "readers")
    assert ("ALLOW", "User:alice", "*", "READ", "GROUP", "LITERAL", "readers") in listed(node, "--group", "readers")
    acls(node, "remove", "--all", "--yes")
    assert listed(node) == []


def test_why_names_the_rule_that_decides(node: GuardedNode) -> None:
    topic = fresh_name()

    def why(principal: str, operation: str = "READ", *words: object) -> str:
        return acls(node, "why", "--principal", principal, "--operation", operation, "-t", topic, *words).out.strip()

    assert why("User:admin") == "allowed: User:admin is one of super.users"
    assert why("User:bob") == f"denied: no ACL names TOPIC {topic}, and allow.everyone.if.no.acl.found=false"
    acls(node, "add", "--allow-principal", "User:bob", "--operation", "READ", "-t", topic[:5], "--prefixed")
    rule = f"ALLOW User:bob from * READ TOPIC PREFIXED {topic[:5]}"
    assert why("User:bob") == why("User:bob", "Describe") == f"allowed: {rule}"
    assert why("User:bob", "WRITE", "--host", "10.1.1.1") == (
        f"denied: of the ACLs of TOPIC {topic} none allows WRITE to User:bob from 10.1.1.1"
    )
    acls(node, "add", "--deny-principal", "User:bob", "--host", "10.0.0.0/8", "--operation", "READ", "-t", "*")
    assert why("User:bob") == f"allowed: {rule}"
    assert why("User:bob", "READ", "--host", "10.9.9.9") == "denied: DENY User:bob from 10.0.0.0/8 READ TOPIC LITERAL *"
    acls(node, "add", "--allow-principal", "User:bob", "--operation", "CREATE", "--cluster")
    assert why("User:bob", "CREATE") == "allowed: ALLOW User:bob from * CREATE CLUSTER LITERAL kafka-cluster"
    answer = acls(node, "why", "--principal", "User:bob", "--operation", "READ", "-t", topic, "--json").json
    assert answer["allowed"] and answer["reason"] == "acl" and answer["rule"]["pattern_type"] == "PREFIXED"
    acls(node, "remove", "--all", "--yes")


@pytest.mark.parametrize("words", [("--all",), ("--allow-principal", "User:zoe"), ("--operation", "READ")])
def test_a_removal_without_a_resource_needs_confirmation(node: GuardedNode, words: tuple[str, ...]) -> None:
    topic = fresh_name()
    acls(node, "add", "--allow-principal", "User:zoe", "--operation", "READ", "-t", topic)
    refused = acls(node, "remove", *words, code=errors.USAGE)
    assert "Remove them? Pass --yes to do so without being asked" in refused.err
    assert len(listed(node, "-t", topic)) == 1
    command = ("acls", "remove", *words, "--command-config", config_of(node))
    said, code = asked_on_terminal(node.sasl_bootstrap, *command, typed="n\n")
    assert "ACLs of the cluster that match: 1. Remove them? [y/N]" in said and code
    assert len(listed(node, "-t", topic)) == 1
    said, code = asked_on_terminal(node.sasl_bootstrap, *command, typed="y\n")
    assert f"removed: ALLOW User:zoe from * READ TOPIC LITERAL {topic}" in said and not code
    assert listed(node, "-t", topic) == []
    assert "there is no such ACL" in acls(node, "remove", *words, code=errors.NOT_FOUND).err


def test_why_requests_the_settings_of_each_broker(tmp_path: Path) -> None:
    """Two that differ answer for themselves."""
    guards = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Node(tmp_path / "first", dict(guards)) as first:
        second = Node(tmp_path / "second", guards | {"node.id": 2, "process.roles": "broker"})
        second.overrides |= {
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{second.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
            "super.users": "User:ANONYMOUS;User:operator",
        }

        formatted = (first.data_dir / "meta.properties").read_text().splitlines()
        second.data_dir.mkdir(parents=True)
        (second.data_dir / "meta.properties").write_text(
            "\n".join(["node.id=2", *(each for each in formatted if each.startswith(("cluster.id", "version")))])
        )
        why = ("acls", "why", "--principal", "User:operator", "--operation", "READ", "-t", "t")

        def answers() -> list[str]:
            return odradek(first.bootstrap, *why).out.splitlines()

        none = "no ACL names TOPIC t, and allow.everyone.if.no.acl.found=false"
        assert answers() == [f"denied: {none}"]
        with second:
            differing = [f"broker 1: denied: {none}", "broker 2: allowed: User:operator is one of super.users"]
            eventually(lambda: answers() == differing, second.log_tail)
            answer = odradek(first.bootstrap, *why, "--json").json
            assert not answer["allowed"]
            assert [(each["brokers"], each["allowed"]) for each in answer["answers"]] == [([1], False), ([2], True)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "--topic", "t"), "name what is allowed or denied: --operation, --producer"),
        (("add", "--operation", "READ"), "name a resource: --topic, --group, --transactional-id, --cluster, …"),
        (("add", "--topic", "t", "--operation", "READ"), "name a principal: --allow-principal or --deny-principal"),
        (
            ("add", "--topic", "t", "--operation", "EAT", "--allow-principal", "User:a"),
            "EAT: is one of ALL,",
        ),
        (
            ("add", "--topic", "t", "--cluster", "--operation", "READ", "--allow-principal", "User:a"),
            "--operation READ: of a CLUSTER it is one of ALL, CREATE, DELETE, ALTER,",
        ),
        (
            ("add", "--topic", "t", "--operation", "READ", "--allow-principal", "a"),
            "a is not a principal; write User:a",
        ),
        (("add", "--topic", "t", "--consumer", "--allow-principal", "User:a"), "a consumer has a group: name it with"),
        (
            ("add", "--topic", "t", "--operation", "READ", "--deny-principal", "User:a", "--host", "pc7"),
            "--host pc7 is not an address; give one",
        ),
        (("remove", "--allow-principal", "alice"), "alice is not a principal; write User:alice"),
        (("remove",), "name what to remove, as --topic or --allow-principal, or give --all"),
        (("why", "--principal", "User:a", "--operation", "READ"), "name one resource: --topic, --group"),
    ],
)
def test_missing_options_are_reported(node: GuardedNode, words: tuple[str, ...], said: str) -> None:
    assert said in acls(node, *words, code=errors.USAGE).err


def test_a_refused_user_gets_the_hint_to_use_another_one(node: GuardedNode) -> None:
    ran = odradek(node.bootstrap, "acls", "list", code=errors.FAILED)
    assert "CLUSTER_AUTHORIZATION_FAILED" in ran.err and "use --command-config of a user who may do this" in ran.err
