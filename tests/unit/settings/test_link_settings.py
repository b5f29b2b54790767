"""Settings of links are parsed, or refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.settings.links import MirrorState, ended_mirrors, floor_of, link_problems, links_of, mirrored_topics

ID = "00000000-0000-0000-0000-000000000007"
LINK = {"odradek.link.west.bootstrap.servers": "a:9092,[::1]:9093"}
MIRROR = {
    **LINK,
    "odradek.link.west.mirror.a.b": "active",
    "odradek.link.west.source.id.a.b": ID,
    "odradek.link.west.leader.epoch.a.b": "3",
}


def test_links_and_their_mirrors_are_read() -> None:
    link = links_of({**MIRROR, "log.cleaner.threads": "2"})["west"]
    assert link.bootstrap_servers == "a:9092,[::1]:9093"
    mirror = link.mirrors["a.b"]
    assert (mirror.state, mirror.source_id, mirror.leader_epoch) == (MirrorState.ACTIVE, UUID(ID), 3)
    assert mirrored_topics(MIRROR) == {"a.b"}
    assert floor_of(MIRROR, "a.b") == 3
    assert floor_of(MIRROR, "a") == floor_of({}, "a.b") == 0


def test_promoted_topics_are_no_mirrors_and_outlive_their_link() -> None:
    promoted = {**MIRROR, "odradek.link.west.mirror.a.b": "promoted"}
    assert mirrored_topics(promoted) == frozenset()
    assert links_of(promoted)["west"].mirrors == {}
    assert links_of(promoted)["west"].promoted == {"a.b"}
    alone = {key: text for key, text in promoted.items() if key not in LINK}
    for settings in (promoted, alone):
        assert ended_mirrors(settings) == {"a.b": 3}
        assert floor_of(settings, "a.b") == 3
        assert link_problems("", settings) == []
    assert ended_mirrors(MIRROR) == {}


def test_invalid_settings_stop_no_broker() -> None:
    broken = {**MIRROR, "odradek.link.west.leader.epoch.a.b": "x", "odradek.link.west.source.id.a.b": "y"}
    mirror = links_of(broken)["west"].mirrors["a.b"]
    assert (mirror.source_id, mirror.leader_epoch) == (None, 0)
    assert links_of({"odradek.link.gone.mirror.t": "active"}) == {}
    assert links_of({"odradek.link.west.bootstrap.servers": "a:99999"}) == {}


def test_settings_that_fit_together_are_taken() -> None:
    assert link_problems("", MIRROR) == link_problems("", LINK) == link_problems("1", {"x": "y"}) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"odradek.link.west.bootstrap.servers": "a"}, "must be host:port"),
        ({"odradek.link.west.bootstrap.servers": "a:0"}, "must be host:port"),
        ({"odradek.link.west.bootstrap.servers": "a:9092,b:65536"}, "must be host:port"),
        ({"odradek.link.west.leader.epoch.a.b": str(2**31 - 2)}, "must be a leader epoch"),
        ({"odradek.link.west.leader.epoch.a.b": "1" * 5000}, "must be a leader epoch"),
        ({"odradek.link.west.mirror.a.b": "off"}, "must be active, paused, promoted or failback"),
        ({"odradek.link.west.leader.epoch.a.b": "-1"}, "must be a leader epoch"),
        ({"odradek.link.west.source.id.a.b": "no"}, "must be a topic id"),
        ({"odradek.link.east.mirror.t": "active"}, "there is no link east"),
        ({"odradek.link.west.leader.epoch.t": "1"}, "t is not a mirror of link west"),
        ({"odradek.link.west.nonsense": "1"}, "is not a setting of a link"),
        ({"odradek.link.west.io.max.bytes.per.second": "1.5"}, "must be a number of bytes"),
        ({"odradek.link.west.security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"odradek.link.west.security.protocol": "SASL_SSL"}, "needs sasl.mechanism and sasl.jaas.config"),
        ({"odradek.link.west.sasl.mechanism": "OAUTHBEARER"}, "must be one of PLAIN, SCRAM"),
        ({"odradek.link.west.sasl.jaas.config": "x"}, "must be one entry"),
        (
            {"odradek.link.west.sasl.jaas.config": 'a.LdapLoginModule required username="u" password="p";'},
            "the login module must be one of PlainLoginModule",
        ),
        (
            {"odradek.link.east.bootstrap.servers": "b:1", "odradek.link.east.mirror.a.b": "active"},
            "a.b is a mirror of link west already",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(changed: dict[str, str], problem: str) -> None:
    (found,) = link_problems("", {**MIRROR, **changed})
    assert problem in found


PREFIXED = {
    **LINK,
    "odradek.link.west.cluster.link.prefix": "west.",
    "odradek.link.west.mirror.west.orders": "active",
    "odradek.link.west.mirror.west.west.orders": "paused",
}


def test_mirrors_have_the_prefix_of_their_link() -> None:
    link = links_of(PREFIXED)["west"]
    assert link.prefix == "west."
    assert {name: mirror.topic for name, mirror in link.by_source.items()} == {
        "orders": "west.orders",
        "west.orders": "west.west.orders",
    }
    assert link_problems("", PREFIXED) == []
    # It was promoted over a link of that name before, which had another prefix.
    assert link_problems("", {**PREFIXED, "odradek.link.west.mirror.orders": "promoted"}) == []


def test_a_topic_that_was_failed_back_has_any_name_at_the_source() -> None:
    settings = {**PREFIXED, "odradek.link.west.mirror.t": "active", "odradek.link.west.source.topic.t": "east.t"}
    assert link_problems("", settings) == []
    link = links_of(settings)["west"]
    assert link.by_source["east.t"] is link.mirrors["t"]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"cluster.link.prefix": "we/st"}, "must be 1 to 248 ASCII letters"),
        ({"cluster.link.prefix": ""}, "must be 1 to 248 ASCII letters"),
        ({"cluster.link.prefix": "w" * 249}, "must be 1 to 248 ASCII letters"),
        ({"mirror.t": "active", "source.topic.t": "a b"}, "contains one or more characters other than"),
        ({"mirror.t": "active", "source.topic.t": "orders"}, "orders of link west has a mirror already: west.orders"),
    ],
)
def test_names_that_no_mirror_can_have_are_refused(changed: dict[str, str], problem: str) -> None:
    found = link_problems("", PREFIXED | {f"odradek.link.west.{key}": text for key, text in changed.items()})
    assert problem in found[0]


def test_a_mirror_without_its_links_prefix_is_left_out() -> None:
    """No controller accepts such a mirror: it would be of another topic."""
    assert links_of({**PREFIXED, "odradek.link.west.mirror.orders": "active"})["west"].mirrors.keys() == {
        "west.orders",
        "west.west.orders",
    }


def test_the_longest_prefix_leaves_one_letter() -> None:
    prefix = "w" * 248
    settings = LINK | {
        "odradek.link.west.cluster.link.prefix": prefix,
        f"odradek.link.west.mirror.{prefix}t": "active",
    }
    assert link_problems("", settings) == []
    assert links_of(settings)["west"].by_source.keys() == {"t"}


def test_links_are_no_settings_of_one_broker() -> None:
    (found,) = link_problems("1", LINK)
    assert "all brokers together" in found
