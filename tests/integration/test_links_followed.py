"""A link copies the listed groups' offsets, ACLs and topic settings besides records, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.clients.links import describe, linked_node, rows_of
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

WITH_PERMISSIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "source", WITH_PERMISSIONS) as node:
        yield node


@pytest.fixture
def here(tmp_path: Path, source: Node) -> Iterator[Node]:
    with linked_node(tmp_path / "here", source, WITH_PERMISSIONS) as node:
        yield node


def alter(here: Node, **settings: str) -> None:
    """Change settings of the link; _ stands for a dot."""
    given = [part for key, text in settings.items() for part in ("--set", f"{key.replace('_', '.')}={text}")]
    odradek(here.bootstrap, "links", "alter", "west", *given)


def own_settings(node: Node, topic: str) -> dict[str, str]:
    """The settings that were set on a topic."""
    found = odradek(node.bootstrap, "configs", "describe", "--topic", topic, "--json").json
    return {each["name"]: each["value"] for each in found[0]["configs"]}


def set_on_topic(node: Node, topic: str, *change: str) -> None:
    odradek(node.bootstrap, "configs", "alter", "--topic", topic, *change)


def rule(principal: str, name: str, kind: ResourceType = ResourceType.TOPIC, **others: Any) -> AclBinding:
    return AclBinding(
        kind,
        name,
        others.get("pattern", ResourcePatternType.LITERAL),
        f"User:{principal}",
        "*",
        others.get("operation", AclOperation.READ),
        others.get("permission", AclPermissionType.ALLOW),
    )


def allow(node: Node, *rules: AclBinding) -> None:
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in client.create_acls(list(rules)).values():
        future.result(PATIENCE_S)


def revoke(node: Node, gone: AclBinding) -> None:
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    same = AclBindingFilter(
        gone.restype,
        gone.name,
        gone.resource_pattern_type,
        gone.principal,
        gone.host,
        gone.operation,
        gone.permission_type,
    )
    client.delete_acls([same])[same].result(PATIENCE_S)


def rules_of(node: Node) -> set[AclBinding]:
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # their hints leave out that it means any
        ResourcePatternType.ANY,
        None,  # type: ignore[arg-type]  # as above
        None,  # type: ignore[arg-type]  # as above
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    return set(client.describe_acls(everything).result(PATIENCE_S))


def consumer(node: Node, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})


def commit(node: Node, group: str, offset: int, topic: str) -> None:
    reader = consumer(node, group)
    try:
        reader.commit(offsets=[TopicPartition(topic, 0, offset, f"at {offset}")], asynchronous=False)
    finally:
        reader.close()


def committed(node: Node, group: str, topic: str) -> int:
    """-1001 where there is nothing."""
    reader = consumer(node, group)
    try:
        return int(reader.committed([TopicPartition(topic, 0)], PATIENCE_S)[0].offset)
    finally:
        reader.close()


def test_offsets_of_listed_groups_follow_until_they_live_here(source: Node, here: Node) -> None:
    for topic in ("orders", "payments"):
        create_topic(source.bootstrap, topic)
        produce_all(source.bootstrap, topic, [(b"k", f"{number}".encode()) for number in range(20)])
    create_topic(here.bootstrap, "payments")
    for group, offset in (("billing-a", 7), ("billing-b", 20), ("billing-test", 3), ("other", 5)):
        commit(source, group, offset, "orders")
        commit(source, group, offset, "payments")
    odradek(here.bootstrap, "links", "mirror", "west", "orders")
    filters = [
        {"name": "billing", "patternType": "PREFIXED", "filterType": "INCLUDE"},
        {"name": "billing-test", "patternType": "LITERAL", "filterType": "EXCLUDE"},
    ]
    alter(
        here,
        consumer_offset_sync_enable="true",
        consumer_offset_sync_ms="1000",
        consumer_offset_group_filters=json.dumps({"groupFilters": filters}),
    )
    for group, offset in (("billing-a", 7), ("billing-b", 20)):
        eventually(lambda group=group, offset=offset: committed(here, group, "orders") == offset)
    commit(source, "billing-b", 19, "orders")
    eventually(lambda: committed(here, "billing-b", "orders") == 19, "a group that goes back is followed too")
    for group, topic in (("billing-test", "orders"), ("other", "orders"), ("billing-a", "payments")):
        assert committed(here, group, topic) < 0, (group, topic)

    reader = consumer(here, "billing-a")
    try:
        reader.subscribe(["orders"])
        first = eventually(lambda: reader.poll(0.1))
        assert (first.offset(), first.value()) == (7, b"7")
        commit(source, "billing-a", 11, "orders")
        commit(source, "billing-b", 12, "orders")
        eventually(lambda: committed(here, "billing-b", "orders") == 12)
        reader.commit(message=first, asynchronous=False)
        assert reader.committed([TopicPartition("orders", 0)], PATIENCE_S)[0].offset == 8
    finally:
        reader.close()
    eventually(lambda: committed(here, "billing-a", "orders") == 11, "it follows again once it has no members")
    assert describe(here.bootstrap)["beside"] == {}


def test_an_offset_waits_for_the_records_below_it(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, "orders")
    produce_all(source.bootstrap, "orders", [(b"k", b"v")] * 5)
    odradek(here.bootstrap, "links", "mirror", "west", "orders")
    eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, "orders")] == [5])
    odradek(here.bootstrap, "links", "pause", "west", "orders")
    produce_all(source.bootstrap, "orders", [(b"k", b"v")] * 5)
    for group, offset in (("g1", 10), ("g2", 4)):
        commit(source, group, offset, "orders")
    everything = json.dumps({"groupFilters": [{"name": "*"}]})
    alter(
        here,
        consumer_offset_sync_enable="true",
        consumer_offset_sync_ms="1000",
        consumer_offset_group_filters=everything,
    )
    eventually(lambda: committed(here, "g2", "orders") == 4)
    assert committed(here, "g1", "orders") < 0
    odradek(here.bootstrap, "links", "resume", "west", "orders")
    eventually(lambda: committed(here, "g1", "orders") == 10)


def test_settings_of_topics_follow_but_those_left_out(source: Node, here: Node) -> None:
    create_topic(source.bootstrap, "orders", retention_ms=-1, cleanup_policy="compact", max_message_bytes=5000)
    odradek(here.bootstrap, "links", "mirror", "west", "orders")
    eventually(lambda: [row["end"] for row in rows_of(here.bootstrap, "orders")] == [0])
    assert own_settings(here, "orders") == {}
    set_on_topic(here, "orders", "--add-config", "retention.ms=7200000,segment.ms=60000")
    alter(
        here,
        topic_config_sync_enable="true",
        topic_config_sync_ms="1000",
        topic_config_sync_exclude="retention.ms,retention.bytes",
    )
    wanted = {"cleanup.policy": "compact", "max.message.bytes": "5000", "retention.ms": "7200000"}
    eventually(lambda: own_settings(here, "orders") == wanted, lambda: own_settings(here, "orders"))
    set_on_topic(source, "orders", "--add-config", "max.message.bytes=6000", "--delete-config", "cleanup.policy")
    wanted = {"max.message.bytes": "6000", "retention.ms": "7200000"}
    eventually(lambda: own_settings(here, "orders") == wanted, lambda: own_settings(here, "orders"))
    # The link copies the effective value of a listed setting, whether it was set on the topic or not.
    alter(here, topic_config_sync_include="retention.ms,segment.ms", topic_config_sync_exclude="")
    wanted = {"max.message.bytes": "6000", "retention.ms": "-1", "segment.ms": "604800000"}
    eventually(lambda: own_settings(here, "orders") == wanted, lambda: own_settings(here, "orders"))
    refused = odradek(
        here.bootstrap, "links", "alter", "west", "--set", "topic.config.sync.include=retention", code=None
    )
    assert refused.code and "retention is not a setting of topics" in refused.err


def test_acls_of_the_list_follow_and_no_others(source: Node, here: Node) -> None:
    read, prefixed = rule("bob", "orders"), rule("bob", "pay", pattern=ResourcePatternType.PREFIXED)
    denied = rule("bob", "orders", operation=AclOperation.WRITE, permission=AclPermissionType.DENY)
    elsewhere = [rule("eve", "orders"), rule("bob", "g", ResourceType.GROUP)]
    ours = [rule("carol", "orders"), rule("bob", "ours", ResourceType.GROUP)]
    allow(source, read, prefixed, denied, *elsewhere)
    allow(here, *ours, rule("bob", "stale"))
    filters = [{"resourceFilter": {"resourceType": "topic"}, "accessFilter": {"principal": "User:bob"}}]
    alter(here, acl_sync_enable="true", acl_sync_ms="1000", acl_filters=json.dumps({"aclFilters": filters}))
    eventually(lambda: rules_of(here) == {read, prefixed, denied, *ours}, lambda: rules_of(here))
    revoke(source, read)
    eventually(lambda: rules_of(here) == {prefixed, denied, *ours}, lambda: rules_of(here))
    alter(here, acl_sync_enable="false")
    assert describe(here.bootstrap)["beside"] == {}


def test_describe_shows_that_the_source_refuses_to_list_acls(tmp_path: Path) -> None:
    with Node(tmp_path / "source") as source, Node(tmp_path / "here", WITH_PERMISSIONS) as here:
        odradek(here.bootstrap, "links", "create", "west", "--source", source.bootstrap)
        allow(here, rule("bob", "orders"))
        everything = json.dumps({"aclFilters": [{"accessFilter": {"operation": "any"}}]})
        alter(here, acl_sync_enable="true", acl_filters=everything)
        eventually(lambda: "ACLs" in describe(here.bootstrap)["beside"], lambda: describe(here.bootstrap))
        assert "ACLs are not copied" in odradek(here.bootstrap, "links", "describe", "west").out
        assert rules_of(here) == {rule("bob", "orders")}
