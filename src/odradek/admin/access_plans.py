"""Changes of ACLs, SCRAM users and quotas as plans."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence

from odradek.admin.plan import Plan, PlanError
from odradek.client.acls import create_acls, delete_acls, describe_acls
from odradek.client.cluster import Cluster
from odradek.client.quotas import Entity, list_quotas, remove_quotas, set_quotas
from odradek.client.users import list_users, remove_user, set_password
from odradek.common.saslprep import is_prepared
from odradek.common.scram import DEFAULT_ITERATIONS, SALT_BYTES, SCRAM_MECHANISMS
from odradek.metadata.acl_messages import acl_creation, acls_from_description, describe_every_acl, filter_of_one
from odradek.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType, PatternType, PermissionType
from odradek.metadata.model import Acl
from odradek.settings.formats import is_principal

PERMISSIONS = ("ALLOW", "DENY")
OPERATIONS = tuple(each.name for each in AclOperation if each >= AclOperation.ALL)
RESOURCES = tuple(each.name for each in AclResourceType if each >= AclResourceType.TOPIC)
PATTERNS = ("LITERAL", "PREFIXED")
QUOTA_TYPES = ("user", "client-id", "ip")
QUOTAS: Mapping[str, str] = {
    "producer_byte_rate": "bytes that it may write in a second, through each broker",
    "consumer_byte_rate": "bytes that it may read in a second, through each broker",
    "request_percentage": "per cent of one thread of each broker",
    "controller_mutation_rate": "partitions that it may make or delete in a second",
    "connection_creation_rate": "connections that it may open in a second, to each broker",
}
MIN_PASSWORD = 8


async def all_acls(cluster: Cluster) -> list[Acl]:
    """All ACLs. Raises ApiError."""
    return list(acls_from_description(await describe_acls(cluster, describe_every_acl())))


def acl_cells(acl: Acl) -> tuple[str, str, str, str, str]:
    """The columns of an ACL in a table: principal, permission, operation, resource, host."""
    return (
        acl.principal,
        PermissionType(acl.permission_type).name,
        AclOperation(acl.operation).name,
        " ".join((AclResourceType(acl.resource_type).name, PatternType(acl.pattern_type).name, acl.resource_name)),
        acl.host,
    )


def parse_acl(
    principal: str, permission: str, operation: str, resource: str, pattern: str, name: str, host: str
) -> Acl:
    """Parse the fields of a form as an ACL, by PERMISSIONS, OPERATIONS, RESOURCES, PATTERNS. Raises PlanError."""
    principal, name, host = principal.strip(), name.strip(), host.strip() or "*"
    if not is_principal(principal):
        raise PlanError(f"{principal[:100]!r} is not a principal; write User:name, or User:* for all")
    if resource == AclResourceType.CLUSTER.name:
        name, pattern = CLUSTER_NAME, PatternType.LITERAL.name
    if not name:
        raise PlanError(f"name the {_words(resource)}, or * for all")
    try:
        return Acl(
            AclResourceType[resource],
            name,
            PatternType[pattern],
            principal,
            host,
            AclOperation[operation],
            PermissionType[permission],
        )
    except KeyError as error:
        raise PlanError(f"{error.args[0]} is unknown") from None


def acl_in_words(acl: Acl) -> str:
    """An ACL as a sentence."""
    verb = "may" if acl.permission_type == PermissionType.ALLOW else "may not"
    who = "Everyone" if acl.principal == "User:*" else acl.principal
    what = AclOperation(acl.operation).name
    where = "" if acl.host == "*" else f" from {acl.host}"
    return f"{who} {verb} {'do ALL' if what == 'ALL' else what} {_pattern_in_words(acl)}{where}."


def _pattern_in_words(acl: Acl) -> str:
    kind = _words(AclResourceType(acl.resource_type).name)
    if acl.resource_type == AclResourceType.CLUSTER:
        return "on the cluster"
    if acl.pattern_type == PatternType.PREFIXED:
        return f"on each {kind} whose name begins with {acl.resource_name}"
    return f"on every {kind}" if acl.resource_name == "*" else f"on {kind} {acl.resource_name}"


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


async def plan_acl(cluster: Cluster, acl: Acl) -> Plan:
    """Add an ACL. Raises PlanError if it exists, ApiError."""
    known = await all_acls(cluster)
    if acl in known:
        raise PlanError(f"there is this ACL already: {acl_in_words(acl)}")
    lines = [acl_in_words(acl)]
    if acl.permission_type == PermissionType.DENY:
        lines.append("What is denied stays denied, whatever other ACLs allow.")
    same = (acl.resource_type, acl.resource_name, acl.pattern_type)
    if not any((each.resource_type, each.resource_name, each.pattern_type) == same for each in known):
        lines.append(
            "It is the first on this resource: where brokers have allow.everyone.if.no.acl.found, those without an ACL "
            "lose what they were allowed by that."
        )
    return Plan("Add an ACL", tuple(lines), lambda connected: create_acls(connected, [acl_creation(acl)]))


async def plan_acl_removal(cluster: Cluster, acl: Acl) -> Plan:
    """Remove an ACL. Raises PlanError if it does not exist, ApiError."""
    if acl not in await all_acls(cluster):
        raise PlanError(f"this ACL is gone by now: {acl_in_words(acl)}")
    lines = [f"No more: {acl_in_words(acl)}"]
    if acl.permission_type == PermissionType.ALLOW:
        lines.append("Programs that need it are refused from then on, unless another ACL allows it.")
    return Plan("Remove an ACL", tuple(lines), lambda connected: delete_acls(connected, [filter_of_one(acl)]))


async def plan_password(cluster: Cluster, name: str, password: str, mechanisms: Sequence[str]) -> Plan:
    """Set the SCRAM password of a new or existing user; no line has the password. Raises PlanError, ApiError."""
    name = name.strip()
    if not name:
        raise PlanError("name the user")
    unknown = [each for each in mechanisms if each not in SCRAM_MECHANISMS]
    if unknown or not mechanisms:
        raise PlanError(f"mechanisms are {' and '.join(SCRAM_MECHANISMS)}")
    if len(password) < MIN_PASSWORD:
        raise PlanError(f"a password has at least {MIN_PASSWORD} characters")
    if not is_prepared(password):
        raise PlanError("clients would hash this password differently (RFC 4013); take letters of one form")
    has = (await list_users(cluster)).get(name)
    by = ", ".join(mechanisms)
    first = (
        f"User {name} is new, and may log in by {by}." if has is None else f"User {name} gets a new password for {by}."
    )
    kept = sorted(set(has or ()) - set(mechanisms))
    lines = [first, *([f"The password for {', '.join(kept)} stays as it is."] if kept else [])]
    lines.append(
        "What the user may do is said by ACLs." if has is None else "Connections that are open stay; new ones need it."
    )
    salts = {SCRAM_MECHANISMS[each]: secrets.token_bytes(SALT_BYTES) for each in mechanisms}
    return Plan(
        f"Set the password of {name}",
        tuple(lines),
        lambda connected: set_password(connected, name, password, salts, DEFAULT_ITERATIONS),
    )


async def plan_user_removal(cluster: Cluster, name: str) -> Plan:
    """Remove the SCRAM credentials of a user. Raises PlanError if there are none, ApiError."""
    has = (await list_users(cluster)).get(name)
    if not has:
        raise PlanError(f"there is no user {name} by now")
    wanted = [SCRAM_MECHANISMS[each] for each in has if each in SCRAM_MECHANISMS]
    lines = (
        f"User {name} may log in no more by {', '.join(has)}. Connections that are open stay.",
        "ACLs and quotas of the user stay as they are.",
    )
    return Plan(f"Remove user {name}", lines, lambda connected: remove_user(connected, name, wanted))


def parse_entity(names: Mapping[str, str]) -> Entity:
    """The entity of a quota, from a form: by type; "" is omitted, * is the default. Raises PlanError."""
    given = {kind: name.strip() for kind, name in names.items() if name.strip()}
    if not given or not given.keys() <= {*QUOTA_TYPES}:
        raise PlanError("say whose quota it is: a user, a client id, both, or an address; * is the default for all")
    if "ip" in given and len(given) > 1:
        raise PlanError("a quota of an address has no user and no client id")
    return {kind: None if name == "*" else name for kind, name in given.items()}


def entity_in_words(entity: Entity) -> str:
    """The entity of a quota as text."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())


async def plan_quota(cluster: Cluster, entity: Entity, key: str, text: str) -> Plan:
    """Set a quota. Raises PlanError, ApiError."""
    if key not in QUOTAS:
        raise PlanError(f"{key} is not a quota; there are {', '.join(QUOTAS)}")
    if ("ip" in entity) != (key == "connection_creation_rate"):
        raise PlanError("connection_creation_rate is for addresses, and the others are for users and client ids")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise PlanError(f"a quota is a number of at least 0, not {text[:40]!r}")
    before = await _quota(cluster, entity, key)
    was = "none" if before is None else f"{before:,.10g}"
    lines = [f"{key} of {entity_in_words(entity)}: {was} → {value:,.10g} ({QUOTAS[key]})."]
    if value == 0:
        lines.append("0 lets nothing through.")
    return Plan(f"Set {key}", tuple(lines), lambda connected: set_quotas(connected, entity, {key: value}))


async def plan_quota_removal(cluster: Cluster, entity: Entity, key: str) -> Plan:
    """Remove a quota. Raises PlanError if there is none, ApiError."""
    before = await _quota(cluster, entity, key)
    if before is None:
        raise PlanError(f"{entity_in_words(entity)} has no {key} by now")
    lines = (f"{key} of {entity_in_words(entity)}, {before:,.10g}, is taken away: a wider quota counts then, or none.",)
    return Plan(f"Remove {key}", lines, lambda connected: remove_quotas(connected, entity, [key]))


async def _quota(cluster: Cluster, entity: Entity, key: str) -> float | None:
    return next((has.get(key) for found, has in await list_quotas(cluster, entity) if found == dict(entity)), None)
