"""Authorization beside a model that looks at every entry: the same decisions, through any changes of the entries."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.metadata.acls import AclOperation as Op
from odradek.metadata.acls import AclResourceType as Kind
from odradek.metadata.acls import PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from odradek.protocol.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from odradek.security.acl import authorizer as module
from odradek.security.acl.authorizer import StandardAuthorizer

DENY, ALLOW = int(PermissionType.DENY), int(PermissionType.ALLOW)
LITERAL, PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)
IMPLIED = {Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}, Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS}}

NAMES = ["a", "ab", "abc", "abd", "b", "*", "ba"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
# All of IPv4, as IPv6 spells it.
MAPPED = "::ffff:0:0/96"
HOSTS = ["*", "10.0.0.1", "10.0.0.0/8", "10.0.0.0/24", MAPPED, "fd00::/8", "not an address/8"]
PEERS = ["10.0.0.1", "10.0.0.2", "10.9.9.9", "192.168.0.1", "fd00::1", "::ffff:10.0.0.1", "unknown"]


def acl(
    name: str = "a",
    operation: int = Op.READ,
    permission: int = ALLOW,
    *,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: int = Kind.TOPIC,
) -> Acl:
    return Acl(int(kind), name, pattern, principal, host, int(operation), permission)


def same_host(rule: str, peer: str) -> bool:
    if rule in ("*", peer):
        return True
    try:
        network, address = ip_network(rule), ip_address(peer)
    except ValueError:
        return False
    if rule == MAPPED:
        return (address if address.version == 4 else address.ipv4_mapped) is not None
    mapped = address.ipv4_mapped if address.version == 6 else None
    return (mapped or address) in network


def speaks_of(rule: Acl, kind: int, name: str) -> bool:
    if rule.resource_type != kind:
        return False
    if rule.pattern_type == PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, "*")


def decided_by(rule: Acl, principal: str, host: str, operation: int) -> bool:
    implied = IMPLIED.get(Op(operation), set()) if rule.permission_type == ALLOW else set()
    return (
        rule.principal in (principal, "User:*")
        and (rule.operation in (operation, Op.ALL) or rule.operation in implied)
        and same_host(rule.host, host)
    )


def model(rules: list[Acl], principal: str, host: str, operation: int, kind: int, name: str, no_acl: bool) -> bool:
    speaking = [rule for rule in rules if speaks_of(rule, kind, name)]
    if not speaking:
        return no_acl
    deciding = [rule.permission_type for rule in speaking if decided_by(rule, principal, host, operation)]
    return ALLOW in deciding and DENY not in deciding


RULES = st.builds(
    Acl,
    resource_type=st.sampled_from([int(Kind.TOPIC), int(Kind.GROUP)]),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from([int(each) for each in Op if each >= Op.ALL]),
    permission_type=st.sampled_from([DENY, ALLOW]),
)
ASKED = st.tuples(
    st.sampled_from(PRINCIPALS),
    st.sampled_from(PEERS),
    st.sampled_from([int(each) for each in Op if each > Op.ALL]),
    st.sampled_from([int(Kind.TOPIC), int(Kind.GROUP), int(Kind.CLUSTER)]),
    st.sampled_from([*NAMES, "abcd", "c"]),
)
# A step: an entry comes under an id, or goes (None).
STEPS = st.lists(st.tuples(st.integers(0, 8), st.none() | RULES), max_size=20)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, asked=st.lists(ASKED, min_size=1, max_size=8), no_acl=st.booleans())
def test_decisions_are_those_of_a_search_through_all_entries(
    steps: list[tuple[int, Acl | None]], asked: list[tuple[str, str, int, int, str]], no_acl: bool
) -> None:
    authorizer = StandardAuthorizer(allow_if_no_acl=no_acl)
    table: dict[UUID, Acl] = {}
    authorizer.update(table)
    for number, rule in steps:
        acl_id = UUID(int=number)
        table = {key: value for key, value in table.items() if key != acl_id}
        if rule is not None:
            table[acl_id] = rule
        authorizer.update(table, [acl_id])
        for question in asked:
            decision = authorizer.why(*question)
            assert decision.allowed == model(list(table.values()), *question, no_acl)
            # The second decision is one that the authorizer kept, and none of before the change.
            assert all(authorizer.authorize(*question) == decision.allowed for _ in range(2))
            assert (decision.rule is not None) == (decision.reason == "acl")
            if decision.rule is not None:
                assert decision.rule in table.values()
                assert (decision.rule.permission_type == ALLOW) == decision.allowed
                assert speaks_of(decision.rule, *question[3:])
                assert decided_by(decision.rule, *question[:3])


@settings(max_examples=300, deadline=None)
@given(rules=st.lists(RULES, max_size=12), asked=ASKED)
def test_some_resource_of_a_type(rules: list[Acl], asked: tuple[str, str, int, int, str]) -> None:
    principal, host, operation, kind, _ = asked
    authorizer = StandardAuthorizer()
    authorizer.update({UUID(int=number): rule for number, rule in enumerate(rules)})
    # Each name stands for what begins with it, and each with a letter more for what no literal speaks of.
    names = [*NAMES, *(f"{name}~" for name in NAMES), "hardcode"]
    possible = any(authorizer.authorize(principal, host, operation, kind, name) for name in names)
    assert authorizer.authorize_by_type(principal, host, operation, kind) == possible


def test_an_acl_for_all_names_allows_some_unless_all_are_denied() -> None:
    """Prefixes that are denied leave names, also where they are the two that Kafka looks at by name."""
    asked = ("User:alice", "10.0.0.1", int(Op.READ), int(Kind.TOPIC))
    denied = [acl(name, permission=DENY, pattern=PREFIXED) for name in ("*", "hard")]
    authorizer = StandardAuthorizer()
    authorizer.update({UUID(int=number): rule for number, rule in enumerate([*denied, acl("*")])})
    assert not authorizer.authorize(*asked, "hardcode")
    assert authorizer.authorize(*asked, "other")
    assert authorizer.authorize_by_type(*asked)
    authorizer.update({UUID(int=number): rule for number, rule in enumerate([acl("*", permission=DENY), acl("a")])})
    assert not authorizer.authorize_by_type(*asked)


def test_super_users_are_known_before_the_metadata_and_against_what_denies() -> None:
    authorizer = StandardAuthorizer(["User:admin"], allow_if_no_acl=True)
    asked = ("10.0.0.1", int(Op.READ), int(Kind.TOPIC), "a")
    assert authorizer.why("User:admin", *asked).reason == "super user"
    assert authorizer.why("User:alice", *asked).reason == "loading"
    assert not authorizer.authorize_by_type("User:alice", *asked[:3])
    authorizer.update({UUID(int=1): acl(permission=DENY, principal="User:*", operation=Op.ALL)})
    assert authorizer.authorize("User:admin", *asked)
    assert authorizer.why("User:alice", *asked).reason == "acl"
    assert authorizer.why("User:alice", *asked[:3], "b").reason == "no acl"
    assert authorizer.authorize("User:alice", *asked[:3], "b")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([acl("*"), acl("ab", pattern=PREFIXED), acl("abc")], 2),
        ([acl("*"), acl("a", pattern=PREFIXED), acl("ab", pattern=PREFIXED)], 2),
        ([acl("abc"), acl("*", permission=DENY, principal="User:*")], 1),
        ([acl("*", operation=Op.ALL)], 0),
    ],
)
def test_the_rule_that_decides_is_one_that_denies_or_the_most_specific(rules: list[Acl], expected: int) -> None:
    authorizer = StandardAuthorizer()
    authorizer.update({UUID(int=number): rule for number, rule in enumerate(rules)})
    assert authorizer.why("User:alice", "10.0.0.1", Op.READ, Kind.TOPIC, "abc").rule == rules[expected]


def test_equal_entries_of_two_ids_go_with_the_last() -> None:
    authorizer = StandardAuthorizer()
    first, second = UUID(int=1), UUID(int=2)
    asked = ("User:alice", "10.0.0.1", int(Op.DESCRIBE), int(Kind.TOPIC), "a")
    authorizer.update({first: acl(), second: acl()})
    authorizer.update({second: acl()}, [first])
    assert authorizer.authorize(*asked)
    authorizer.update({}, [second])
    assert authorizer.why(*asked).reason == "no acl"


def record(number: int, rule: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=UUID(int=number),
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission_type,
    )


def test_the_authorizer_follows_metadata_over_a_snapshot() -> None:
    publisher, authorizer = MetadataPublisher(), StandardAuthorizer()
    publisher.subscribe(authorizer.on_metadata)

    def may_read(*names: str) -> list[bool]:
        return [authorizer.authorize("User:alice", "10.0.0.1", Op.READ, Kind.TOPIC, name) for name in names]

    publisher.committed([(0, record(1, acl("a"))), (1, record(2, acl("b")))], 1)
    assert may_read("a", "b", "c") == [True, True, False]
    # Entries that the snapshot lacks are gone.
    publisher.load_snapshot([record(2, acl("b")), record(3, acl("c"))], 5, 1)
    assert may_read("a", "b", "c") == [False, True, True]
    publisher.committed([(6, RemoveAccessControlEntryRecord(id=UUID(int=2)))], 1)
    assert may_read("a", "b", "c") == [False, False, True]
    late = StandardAuthorizer()
    publisher.subscribe(late.on_metadata)
    assert late.authorize("User:alice", "10.0.0.1", Op.READ, Kind.TOPIC, "c")


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:10.0.0.0/104", "10.9.9.9"),
        ("2001:DB8::/32", "2001:db8:1::2"),
    ],
)
def test_a_host_denies_however_its_address_is_spelled(host: str, peer: str) -> None:
    authorizer = StandardAuthorizer()
    table = {UUID(int=1): acl(), UUID(int=2): acl(permission=DENY, host=host)}
    authorizer.update(table)
    assert not authorizer.authorize("User:alice", peer, Op.READ, Kind.TOPIC, "a")
    authorizer.update({UUID(int=1): table[UUID(int=1)]})
    assert authorizer.authorize("User:alice", peer, Op.READ, Kind.TOPIC, "a")


def test_decisions_about_long_names_are_not_kept() -> None:
    """Clients choose what they ask for, and need no permission to ask."""
    authorizer = StandardAuthorizer()
    authorizer.update({UUID(int=1): acl()})
    for number in range(3):
        assert not authorizer.authorize("User:alice", "10.0.0.1", Op.READ, Kind.TOPIC, f"{number}" * 256)
    authorizer.authorize("User:alice", "10.0.0.1", Op.READ, Kind.TOPIC, "a" * 255)
    assert [len(name) for names in authorizer._decided.values() for name in names] == [255]


def test_kept_decisions_are_bounded_over_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_DECISIONS", 4)
    authorizer = StandardAuthorizer()
    authorizer.update({UUID(int=1): acl("a", pattern=PREFIXED)})
    most = 0
    for number in range(11):
        peer, name = f"10.0.0.{number % 3}", f"a{number}"
        assert all(authorizer.authorize("User:alice", peer, Op.READ, Kind.TOPIC, name) for _ in range(2))
        most = max(most, sum(len(names) for names in authorizer._decided.values()))
    assert most == 4
