"""The console describes each change of a real cluster first and then makes it; invalid input gets a line."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from odradek.admin.access_plans import (
    all_acls,
    parse_acl,
    parse_entity,
    plan_acl,
    plan_acl_removal,
    plan_password,
    plan_quota,
    plan_quota_removal,
    plan_user_removal,
)
from odradek.admin.link_facts import described_links
from odradek.admin.link_plans import plan_end, plan_state
from odradek.admin.plan import Plan
from odradek.admin.topic_plans import plan_deletion, plan_partitions, plan_setting, plan_topic
from odradek.client.admin import ResourceType, describe_configs
from odradek.client.cluster import Cluster, parse_bootstrap
from odradek.client.quotas import list_quotas
from odradek.client.users import list_users
from odradek.common.errors import OdradekError
from odradek.common.real_io import RealClock, RealNetwork
from odradek.console.forms import parse_new_topic
from odradek.settings.links import MirrorState
from tests.support.clients.cli import odradek
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.nodes.node import Node
from tests.support.waiting import eventually_async

GIVEN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
PASSWORD = "a password that no line has"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("node"), GIVEN) as node:
        yield node


@contextlib.asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Cluster]:
    async with Cluster(RealNetwork(), RealClock(), parse_bootstrap(node.bootstrap)) as cluster:
        yield cluster


async def refusal(planning: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(OdradekError) as refused:
        await planning()
    return str(refused.value)


async def setting(cluster: Cluster, kind: ResourceType, name: str, key: str) -> str | None:
    (found,) = await describe_configs(cluster, kind, [name])
    return next(each.value for each in found.configs if each.name == key)


async def test_a_topic_is_made_grown_set_and_deleted(node: Node) -> None:
    async with connected(node) as cluster:
        wanted = parse_new_topic(" orders ", "2", "", "retention.ms=1000\n\ncleanup.policy = compact\n")
        plan = await plan_topic(cluster, wanted)
        assert plan.lines[:3] == (
            "Topic orders is made, with 2 partitions and 1 replica of each.",
            "retention.ms is 1000",
            "cleanup.policy is compact",
        )
        assert "one replica" in plan.lines[3]
        assert not await knows(cluster, "orders"), "a preview makes nothing"
        await plan.work(cluster)
        assert await knows(cluster, "orders")
        assert "TOPIC_ALREADY_EXISTS" in repr(await error_of(plan_topic(cluster, wanted)))
        produce_all(node.bootstrap, "orders", [(b"k", b"v")] * 3)

        plan = await plan_partitions(cluster, "orders", 5)
        assert plan.lines[0] == "Topic orders has 2 partitions, and will have 5. None can be taken away again."
        await plan.work(cluster)
        await eventually_async(lambda: has_partitions(cluster, "orders", 5))
        assert "can only be given more" in await refusal(lambda: plan_partitions(cluster, "orders", 5))

        topic = ResourceType.TOPIC
        plan = await plan_setting(cluster, topic, "orders", "retention.ms", "2000")
        assert plan.lines == ("retention.ms of topic orders is now 1000.", "It becomes 2000.")
        await plan.work(cluster)
        await eventually_async(lambda: has_value(cluster, topic, "orders", "retention.ms", "2000"))
        await (await plan_setting(cluster, topic, "orders", "retention.ms", None)).work(cluster)
        await eventually_async(lambda: has_value(cluster, topic, "orders", "retention.ms", "604800000"))
        assert "no value of its own" in await refusal(
            lambda: plan_setting(cluster, topic, "orders", "retention.ms", None)
        )
        for key, value in (("retention.ms", "soon"), ("no.such", "1")):
            assert "INVALID_CONFIG" in repr(await error_of(plan_setting(cluster, topic, "orders", key, value)))

        plan = await plan_deletion(cluster, "orders")
        assert plan.lines[0] == "Topic orders is deleted, with 5 partitions and 3 records."
        assert plan.typed == "orders"
        await plan.work(cluster)
        await eventually_async(lambda: is_gone(cluster, "orders"))


async def error_of(planning: Awaitable[Plan]) -> object:
    with pytest.raises(OdradekError) as refused:
        await planning
    return getattr(refused.value, "code", refused.value)


async def knows(cluster: Cluster, topic: str) -> bool:
    return any(each.name == topic for each in (await cluster.metadata()).topics)


async def is_gone(cluster: Cluster, topic: str) -> bool:
    return not await knows(cluster, topic)


async def has_partitions(cluster: Cluster, topic: str, count: int) -> bool:
    return len((await cluster.topic(topic)).partitions) == count


async def has_value(cluster: Cluster, kind: ResourceType, name: str, key: str, value: str) -> bool:
    return await setting(cluster, kind, name, key) == value


async def test_settings_of_a_broker_and_of_all(node: Node) -> None:
    async with connected(node) as cluster:
        broker = ResourceType.BROKER
        plan = await plan_setting(cluster, broker, "", "log.retention.ms", "5000")
        assert plan.lines == ("log.retention.ms of all brokers is now not set.", "It becomes 5000.")
        await plan.work(cluster)
        await eventually_async(lambda: has_value(cluster, broker, "1", "log.retention.ms", "5000"))
        secret = await refusal(lambda: plan_setting(cluster, broker, "1", "ssl.keystore.password", "secret of the key"))
        assert "is a secret" in secret
        assert "of the key" not in secret
        await (await plan_setting(cluster, broker, "", "log.retention.ms", None)).work(cluster)
        assert "dynamically" in await refusal(lambda: plan_setting(cluster, broker, "1", "process.roles", "broker"))


async def test_a_secret_that_is_not_set_yet_is_not_shown(tmp_path: Path) -> None:
    """Brokers describe no setting of a link before it is set."""
    keys = tmp_path / "secrets.keys"
    keys.write_text(base64.b64encode(os.urandom(32)).decode())
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hunter2";'
    with Node(tmp_path / "node", {"odradek.secret.key.file": keys}) as node:
        async with connected(node) as cluster:
            await (
                await plan_setting(cluster, ResourceType.BROKER, "", "odradek.link.west.bootstrap.servers", "b:1")
            ).work(cluster)
            plan = await plan_setting(cluster, ResourceType.BROKER, "", "odradek.link.west.sasl.jaas.config", login)
    assert plan.lines[1] == "It becomes another one (not shown)."
    assert "hunter2" not in "".join(plan.lines)


async def test_acls_are_added_and_removed(node: Node) -> None:
    acl = parse_acl("User:alice", "ALLOW", "READ", "TOPIC", "PREFIXED", "orders", "")
    async with connected(node) as cluster:
        plan = await plan_acl(cluster, acl)
        assert plan.lines[0] == "User:alice may READ on each topic whose name begins with orders."
        assert plan.lines[1].startswith("It is the first on this resource")
        assert acl not in await all_acls(cluster)
        await plan.work(cluster)
        await eventually_async(lambda: has_acl(cluster, acl))
        assert "there is this ACL already" in await refusal(lambda: plan_acl(cluster, acl))
        other = parse_acl("User:bob", "DENY", "ALL", "TOPIC", "PREFIXED", "orders", "10.0.0.1")
        plan = await plan_acl(cluster, other)
        assert plan.lines == (
            "User:bob may not do ALL on each topic whose name begins with orders from 10.0.0.1.",
            "What is denied stays denied, whatever other ACLs allow.",
        )
        plan = await plan_acl_removal(cluster, acl)
        assert plan.lines[0] == "No more: User:alice may READ on each topic whose name begins with orders."
        await plan.work(cluster)
        await eventually_async(lambda: has_no_acl(cluster, acl))
        assert "is gone by now" in await refusal(lambda: plan_acl_removal(cluster, acl))


async def has_acl(cluster: Cluster, acl: object) -> bool:
    return acl in await all_acls(cluster)


async def has_no_acl(cluster: Cluster, acl: object) -> bool:
    return acl not in await all_acls(cluster)


async def test_users_are_set_and_removed_and_no_line_has_the_password(node: Node) -> None:
    async with connected(node) as cluster:
        plan = await plan_password(cluster, " carol ", PASSWORD, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
        assert plan.lines[0] == "User carol is new, and may log in by SCRAM-SHA-256, SCRAM-SHA-512."
        assert PASSWORD not in repr(plan)
        assert not await list_users(cluster)
        await plan.work(cluster)
        await eventually_async(lambda: has_user(cluster, "carol"))
        plan = await plan_password(cluster, "carol", PASSWORD + "!", ["SCRAM-SHA-512"])
        assert plan.lines[:2] == (
            "User carol gets a new password for SCRAM-SHA-512.",
            "The password for SCRAM-SHA-256 stays as it is.",
        )
        for name, password, by in (
            ("", PASSWORD, ["SCRAM-SHA-256"]),
            ("x", "short", ["SCRAM-SHA-256"]),
            ("x", PASSWORD, []),
        ):
            assert PASSWORD not in await refusal(lambda: plan_password(cluster, name, password, by))  # noqa: B023 - called within the round
        plan = await plan_user_removal(cluster, "carol")
        assert plan.lines[0].startswith("User carol may log in no more by SCRAM-SHA-256, SCRAM-SHA-512.")
        await plan.work(cluster)
        await eventually_async(lambda: has_no_users(cluster))
        assert "there is no user carol" in await refusal(lambda: plan_user_removal(cluster, "carol"))


async def has_user(cluster: Cluster, name: str) -> bool:
    return name in await list_users(cluster)


async def has_no_users(cluster: Cluster) -> bool:
    return not await list_users(cluster)


async def test_quotas_are_set_and_removed(node: Node) -> None:
    entity = parse_entity({"user": "alice", "client-id": "*", "ip": ""})
    async with connected(node) as cluster:
        plan = await plan_quota(cluster, entity, "producer_byte_rate", "1048576")
        assert plan.lines[0].startswith(
            "producer_byte_rate of user alice, client-id (default): none → 1,048,576 (bytes that it may write"
        )
        await plan.work(cluster)
        await eventually_async(lambda: has_quotas(cluster, 1))
        plan = await plan_quota(cluster, entity, "producer_byte_rate", "0")
        assert "1,048,576 → 0" in plan.lines[0]
        assert plan.lines[1] == "0 lets nothing through."
        await (await plan_quota_removal(cluster, entity, "producer_byte_rate")).work(cluster)
        await eventually_async(lambda: has_quotas(cluster, 0))
        for key, text in (("producer_byte_rate", "much"), ("no_such", "1"), ("connection_creation_rate", "1")):
            assert await refusal(lambda: plan_quota(cluster, entity, key, text))  # noqa: B023 - called within the round


async def has_quotas(cluster: Cluster, count: int) -> bool:
    return len(await list_quotas(cluster, {})) == count


async def test_mirrors_are_paused_resumed_promoted_and_failed_over(node: Node, tmp_path: Path) -> None:
    with Node(tmp_path / "source") as source:
        for topic in ("flights", "trains"):
            create_topic(source.bootstrap, topic)
            produce_all(source.bootstrap, topic, [(b"k", b"v")] * 3)
        await asyncio.to_thread(odradek, node.bootstrap, "links", "create", "west", "--source", source.bootstrap)
        await asyncio.to_thread(odradek, node.bootstrap, "links", "mirror", "west", "flights", "trains")
        async with connected(node) as cluster:
            await eventually_async(lambda: has_mirrors(cluster, ("flights", "active", 0), ("trains", "active", 0)))
            plan = await plan_state(cluster, "west", ["trains"], MirrorState.PAUSED)
            assert (plan.title, plan.typed) == ("Pause trains", "")
            await plan.work(cluster)
            await eventually_async(lambda: has_mirrors(cluster, ("flights", "active", 0), ("trains", "paused", 0)))
            assert "paused already" in await refusal(
                lambda: plan_state(cluster, "west", ["trains"], MirrorState.PAUSED)
            )
            plan = await plan_state(cluster, "west", [], MirrorState.ACTIVE)
            assert plan.title == "Resume trains", "what is active stays as it is"
            await plan.work(cluster)
            await eventually_async(lambda: has_mirrors(cluster, ("flights", "active", 0), ("trains", "active", 0)))
            assert "there is no link east" in await refusal(lambda: plan_end(cluster, "east", [], is_reached=True))
            assert "does not mirror boats" in await refusal(
                lambda: plan_end(cluster, "west", ["boats"], is_reached=True)
            )

            plan = await plan_end(cluster, "west", ["flights"], is_reached=True)
            assert (plan.title, plan.typed) == ("Promote flights", "west")
            assert "flights-0: ends here at 3, at the source at 3, 0 missing" in plan.lines
            await plan.work(cluster)
            assert [each["topic"] for each in (await described_links(cluster))[0]["partitions"]] == ["trains"]

            again = await plan_end(cluster, "west", [], is_reached=True)
            source.kill()
            await eventually_async(lambda: is_not_reached(cluster))
            assert "`odradek links failover`" in await refusal(lambda: again.work(cluster)), "a preview may be old"
            assert "`odradek links failover`" in await refusal(lambda: plan_end(cluster, "west", [], is_reached=True))
            await asyncio.to_thread(odradek, node.bootstrap, "links", "mirror", "west", "boats")
            plan = await plan_end(cluster, "west", [], is_reached=False)
            assert plan.lines[:3] == (
                "trains: topics of this cluster from then on; this cannot be undone; no missing offsets are known.",
                "No request is sent to the source: records that it got after its last known end are not known here.",
                "boats was never created here, and is left out.",
            )
            await plan.work(cluster)
            produce_all(node.bootstrap, "trains", [(b"k", b"written here")])


async def has_mirrors(cluster: Cluster, *wanted: tuple[str, str, int]) -> bool:
    found = [row for link in await described_links(cluster) for row in link["partitions"]]
    return [(row["topic"], row["state"], row["lag"]) for row in found] == list(wanted)


async def is_not_reached(cluster: Cluster) -> bool:
    (link,) = await described_links(cluster)
    return bool(link["why"] == "unreachable" and all(row["reason"] for row in link["partitions"]))


def test_wrong_input_gets_one_line() -> None:
    for line, read in (
        ("is not a principal", lambda: parse_acl("alice", "ALLOW", "READ", "TOPIC", "LITERAL", "x", "")),
        (
            "name the transactional id",
            lambda: parse_acl("User:a", "ALLOW", "READ", "TRANSACTIONAL_ID", "LITERAL", "", ""),
        ),
        ("FLY is unknown", lambda: parse_acl("User:a", "ALLOW", "FLY", "TOPIC", "LITERAL", "x", "")),
        ("say whose quota", lambda: parse_entity({"user": " "})),
        ("no user and no client id", lambda: parse_entity({"user": "a", "ip": "10.0.0.1"})),
        ("a setting is key=value", lambda: parse_new_topic("a", "", "", "retention.ms")),
        ("partitions are a whole number", lambda: parse_new_topic("a", "0", "", "")),
        ("replicas are at most", lambda: parse_new_topic("a", "", "99999", "")),
    ):
        with pytest.raises(OdradekError, match=line):
            read()
