"""The numbers of access control entries (Kafka's), and which entries a filter of DescribeAcls or DeleteAcls means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_network

from odradek.metadata.model import Acl

WILDCARD = "*"
EVERYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"


class AclOperation(IntEnum):
    """The operations of ACLs."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """The resource types of ACLs."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The comparison of an entry's name; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of entries: ANY and None match all values of a field."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    @property
    def unknown_field(self) -> str:
        """The field with an unknown value; "" if all are known."""
        fields: dict[str, tuple[type[IntEnum], int]] = {
            "resource type": (AclResourceType, self.resource_type),
            "pattern type": (PatternType, self.pattern_type),
            "operation": (AclOperation, self.operation),
            "permission type": (PermissionType, self.permission_type),
        }
        return next((name for name, (kind, value) in fields.items() if value not in set(kind) or not value), "")

    @property
    def exact(self) -> Acl | None:
        """The only ACL that can match, if all fields are set."""
        if self.resource_name is None or self.principal is None or self.host is None:
            return None
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return None
        if 1 in (self.resource_type, self.operation, self.permission_type):  # ANY
            return None
        return Acl(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )

    def matches(self, acl: Acl) -> bool:
        """Whether `acl` is meant."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name in (None, acl.resource_name):
            return True
        if self.pattern_type != PatternType.MATCH or self.resource_name is None:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD


# IPv4 within IPv6: ::ffff:0:0/96.
_MAPPED_BITS, _MAPPED = 96, 0xFFFF


def network_of(host: str) -> tuple[int, int, int] | None:
    """Version, length and the leading bits of a host in CIDR notation; None for any other host."""
    if "/" not in host:
        return None
    try:
        network = ip_network(host, strict=False)
    except ValueError:
        return None
    version, length, bits = network.version, network.prefixlen, network.max_prefixlen
    value = int(network.network_address)
    if version == 6 and length >= _MAPPED_BITS and value >> 32 == _MAPPED:
        version, length, bits, value = 4, length - _MAPPED_BITS, 32, value & 0xFFFFFFFF
    return version, length, value >> bits - length
