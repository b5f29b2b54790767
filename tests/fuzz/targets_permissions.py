"""Names and rules of authentication, permissions and quotas: look-ups agree with a model, entry by entry.

The rules by which names are mapped are an operator's, and may be as slow as regular expressions are; names of
certificates and Kerberos principals are a client's. Rules that are read here are applied to short names, fixed rules to
all names.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from random import Random
from uuid import UUID

from odradek.common.addresses import plain_address
from odradek.common.steps import all_steps
from odradek.controller.acls import Acls
from odradek.controller.client_quotas import alter_client_quotas
from odradek.controller.state import ControllerState
from odradek.metadata.acls import EVERYBODY, WILDCARD, AclOperation, PatternType, PermissionType, network_of
from odradek.metadata.model import Acl, QuotaEntity, quota_entity
from odradek.protocol.messages import alter_client_quotas_request as quota_requests
from odradek.protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from odradek.security.acl.authorizer import StandardAuthorizer
from odradek.security.acl.index import one_form
from odradek.security.quota import entities
from odradek.security.sasl import kerberos_names
from odradek.security.tls import principal_rules
from odradek.statemachine.timeline import Timeline
from tests.fuzz.engine import Target

RULES, NAME, LOCAL_RULES, PRINCIPAL, ACLS = range(5)
FIXED_RULES = r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,RULE:^CN=([^,+]+).*$/$1/,DEFAULT"
FIXED_LOCAL_RULES = ("RULE:[2:$1-$2@$0](.*@A)s/@.*//g/L", "RULE:[1:$1]s/(a+)b/$1/", "DEFAULT")
SHORT, MANY_RULES = 12, 400
HOSTS = ("*", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.0/8", "::1", "fe80::/10", "0:0:0:0:0:0:0:1")
KINDS_OF_ENTITIES, KEY = ("user", "client-id", "ip"), "producer_byte_rate"
SIDES = (PermissionType.DENY, PermissionType.ALLOW)


def generate_permissions(rng: Random) -> bytes:
    """A byte that says who reads it, then the text."""
    kind = rng.randrange(5)
    names = ("a", "ab", "abc", "b", "*", "")

    def acl() -> str:
        who = rng.choice(("User:x", "User:*", "User:y", "x"))
        where, what = rng.choice(HOSTS), rng.choice((1, 2, 3, 4, 8, 10, 11))
        return f"2|{rng.choice(names)}|{rng.choice((3, 4, 4, 1))}|{who}|{where}|{what}|{rng.choice((2, 3, 3))}"

    texts = {
        RULES: rng.choice((FIXED_RULES, "DEFAULT", r"RULE:(a|b)c\/d/$1\$2/U, DEFAULT")),
        NAME: f"CN={rng.choice(names)},OU=b+C=#0403,O=\\,x",
        LOCAL_RULES: rng.choice(FIXED_LOCAL_RULES),
        PRINCIPAL: rng.choice(("a/b@A", "aaab@A", "x@y", "a/b/c@A")),
        ACLS: "\n".join([f"{rng.choice(names)}|{rng.choice(HOSTS)}", *(acl() for _ in range(rng.randrange(8)))]),
    }
    return bytes((kind,)) + texts[kind].encode()


def run_permissions(data: bytes) -> None:
    if not data:
        return
    kind, text = data[0] % 5, data[1:].decode("utf-8", "replace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        _read(kind, text)


def _read(kind: int, text: str) -> None:
    if kind == ACLS:
        _decides_as_the_model(text)
        return
    try:
        if kind == RULES:
            principal_rules.parse_principal_rules(text[:MANY_RULES]).name_of("CN=a,O=b")
        elif kind == NAME:
            assert principal_rules.parse_principal_rules(FIXED_RULES).name_of(text) is not None
        elif kind == LOCAL_RULES:
            kerberos_names.parse_rules([text[:MANY_RULES]], "A").name_of("ab/c@A")
        else:
            name = kerberos_names.parse_rules(FIXED_LOCAL_RULES, "A").name_of(text)
            assert name and not set(name) & set("/@")
    except ValueError as error:
        assert str(error)


def _decides_as_the_model(text: str) -> None:
    question, *lines = text.split("\n")
    name, _, host = question.partition("|")
    creations = [_creation(line.split("|")) for line in lines[:20] if line.count("|") == 6]
    result = all_steps(Acls(ControllerState(Timeline()), Random(1)).create(CreateAclsRequest(creations=[*creations])))
    refused = [each.error_code for each in result.response.results]
    assert len(refused) == len(creations)
    acls = [_acl(creation) for creation, code in zip(creations, refused, strict=True) if not code]
    decides = StandardAuthorizer()
    decides.update({UUID(int=number): acl for number, acl in enumerate(acls)})
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER):
        expected = _model(acls, name, host, int(operation))
        assert decides.authorize("User:x", host, int(operation), 2, name) == expected, (question, acls)
    decides.update({})
    assert not decides.authorize("User:x", host, int(AclOperation.READ), 2, name)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 0


def _creation(fields: list[str]) -> AclCreation:
    return AclCreation(
        resource_type=_number(fields[0]),
        resource_name=fields[1],
        resource_pattern_type=_number(fields[2]),
        principal=fields[3],
        host=fields[4],
        operation=_number(fields[5]),
        permission_type=_number(fields[6]),
    )


def _acl(each: AclCreation) -> Acl:
    return Acl(
        each.resource_type,
        each.resource_name,
        each.resource_pattern_type,
        each.principal,
        each.host,
        each.operation,
        each.permission_type,
    )


def _model(acls: Iterable[Acl], name: str, host: str, operation: int) -> bool:
    """Kafka's rule, entry by entry."""
    speak = [acl for acl in acls if _speaks(acl, name, host, operation)]
    return bool(speak) and all(acl.permission_type == PermissionType.ALLOW for acl in speak)


def _speaks(acl: Acl, name: str, host: str, operation: int) -> bool:
    prefixed = acl.pattern_type == PatternType.PREFIXED
    is_named = name.startswith(acl.resource_name) if prefixed else acl.resource_name in (name, WILDCARD)
    return (
        acl.resource_type == 2
        and is_named
        and acl.principal in ("User:x", EVERYBODY)
        and operation in _implied(acl)
        and _is_at(acl.host, host)
    )


def _implied(acl: Acl) -> set[int]:
    if acl.operation == AclOperation.ALL:
        return {int(each) for each in AclOperation}
    describes = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    if acl.permission_type == PermissionType.ALLOW and acl.operation in describes:
        return {acl.operation, int(AclOperation.DESCRIBE)}
    return {acl.operation}


def _is_at(wanted: str, host: str) -> bool:
    network = network_of(wanted)
    if network is None:
        return wanted == WILDCARD or one_form(wanted) == one_form(host)
    own = network_of(host + ("/128" if ":" in host else "/32")) if "/" not in host else None
    return own is not None and own[0] == network[0] and own[2] >> (own[1] - network[1]) == network[2]


def generate_quotas(rng: Random) -> bytes:
    """A line with the user and the client id of a client; then a line for each entity with its quota."""
    names = ("a", "b", "", "<default>", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0")
    lines = [f"{rng.choice(names[:2])};{rng.choice(names[:2])}"]
    for _ in range(rng.randrange(1, 7)):
        parts = [f"{rng.choice(KINDS_OF_ENTITIES)}={rng.choice(names)}" for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        lines.append(",".join(parts) + f";{rng.choice(('1', '2.5', '-1', 'nan', 'inf', '0', '1e300'))}")
    return "\n".join(lines).encode()


def run_quotas(data: bytes) -> None:
    who, *lines = data.decode("utf-8", "replace").split("\n")
    user, _, client_id = who.partition(";")
    entries = [_entry(line) for line in lines[:20]]
    request = quota_requests.AlterClientQuotasRequest(entries=entries)
    result = all_steps(alter_client_quotas(ControllerState(Timeline()), request))
    assert [bool(each.error_code) for each in result.response.entries] == [
        bool(each.error_message) for each in result.response.entries
    ]
    quotas: dict[QuotaEntity, Mapping[str, float]] = {}
    for record in result.records:
        entity = quota_entity([(part.entity_type, part.entity_name) for part in record.entity])
        assert entity not in quotas, "an entity is changed twice"
        quotas[entity] = {record.key: record.value}
        for kind, name in entity:
            assert name != "" and (
                kind != "ip" or name is None or plain_address(plain_address(name)) == plain_address(name)
            )
    limit = entities.limit_of_client(quotas, KEY, user, client_id)
    assert (None if limit is None else limit.value) == _limit(quotas, user, client_id), (quotas, who)
    assert plain_address(plain_address(user)) == plain_address(user)


def _entry(line: str) -> quota_requests.EntryData:
    parts, _, value = line.partition(";")
    pairs = [part.partition("=") for part in parts.split(",")]
    entity = [
        quota_requests.EntityData(entity_type=kind, entity_name=None if name == "<default>" else name)
        for kind, _, name in pairs
    ]
    try:
        number = float(value)
    except ValueError:
        number = 1.0
    return quota_requests.EntryData(entity=entity, ops=[quota_requests.OpData(key=KEY, value=number)])


def _limit(quotas: Mapping[QuotaEntity, Mapping[str, float]], user: str, client_id: str) -> float | None:
    """Kafka's order, most specific first: the best of all entities that mean the client."""
    best: tuple[int, float] | None = None
    order = [(1, 1), (1, 2), (1, 0), (2, 1), (2, 2), (2, 0), (0, 1), (0, 2)]
    for entity, values in quotas.items():
        kinds = dict(entity)
        if "ip" in kinds or any(name not in (None, own) for name, own in _pairs(kinds, user, client_id)):
            continue
        rank = order.index((_exactness(kinds, "user"), _exactness(kinds, "client-id")))
        if best is None or rank < best[0]:
            best = rank, values[KEY]
    return None if best is None else best[1]


def _pairs(kinds: Mapping[str, str | None], user: str, client_id: str) -> list[tuple[str | None, str]]:
    owners = {"user": user, "client-id": client_id}
    return [(name, owners[kind]) for kind, name in kinds.items()]


def _exactness(kinds: Mapping[str, str | None], kind: str) -> int:
    """0: does not speak of it; 1: by name; 2: by default."""
    return 0 if kind not in kinds else 2 if kinds[kind] is None else 1


TARGETS = (
    Target(
        "permissions",
        generate_permissions,
        run_permissions,
        (
            b"RULE:",
            b"DEFAULT",
            b"/",
            b"\\",
            b"$1",
            b"{99999999999999999999}",
            b"|",
            b"User:*",
            b"/0",
            b"::ffff:",
            b"[1:",
        ),
    ),
    Target(
        "quotas", generate_quotas, run_quotas, (b"user=", b"client-id=", b"ip=", b"<default>", b";", b"nan", b"1e309")
    ),
)
