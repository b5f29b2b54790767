"""The index of ACLs: finds those for a resource, principal, operation and host.

There is no linear search. The patterns of a name are found by one lookup for each possible length of a prefix
(`prefixes`); in a pattern, principal, operation and host are keys. An ACL is stored under each operation that it
implies; ALL is a key of its own.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from itertools import product
from typing import TypeVar

from odradek.metadata.acls import EVERYBODY, WILDCARD, AclOperation, PatternType, PermissionType, network_of
from odradek.metadata.model import Acl
from odradek.security.acl.prefixes import Prefixes

K = TypeVar("K")


_ALL, _ALLOW, _DENY = int(AclOperation.ALL), int(PermissionType.ALLOW), int(PermissionType.DENY)
_PREFIXED = int(PatternType.PREFIXED)
# The operation that each implies if it is allowed.
_IMPLIED = {
    int(AclOperation.READ): int(AclOperation.DESCRIBE),
    int(AclOperation.WRITE): int(AclOperation.DESCRIBE),
    int(AclOperation.DELETE): int(AclOperation.DESCRIBE),
    int(AclOperation.ALTER): int(AclOperation.DESCRIBE),
    int(AclOperation.ALTER_CONFIGS): int(AclOperation.DESCRIBE_CONFIGS),
}


def _covered(acl: Acl) -> tuple[int, ...]:
    """The operations under which an ACL is stored; only ALLOW implies other operations. Lookups include ALL."""
    implied = _IMPLIED.get(acl.operation) if acl.permission_type == _ALLOW else None
    return (acl.operation,) if implied is None else (acl.operation, implied)


Address = tuple[int, int, int]  # version, number of bits, value
Network = tuple[int, int, int]  # version, length of the prefix, its value


@lru_cache(maxsize=4096)
def _address(host: str) -> Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if address.version == 6 else None
    address = mapped or address
    return address.version, address.max_prefixlen, int(address)


@lru_cache(maxsize=4096)
def one_form(host: str) -> str:
    """The normalized form of an address; any other text is unchanged."""
    found = _address(host)
    return host if found is None else f"{found[0]}/{found[2]}"


class _Hosts:
    """ACLs that differ in the host, or in the operation that implies this one.

    There is one object for each operation of each principal in each pattern, so rare fields take no memory in most of
    them.
    """

    __slots__ = ("_anywhere", "_exact", "_networks")

    def __init__(self) -> None:
        self._anywhere: tuple[Acl, ...] = ()
        self._exact: dict[str, list[Acl]] | None = None
        self._networks: _Networks | None = None

    def add(self, acl: Acl) -> None:
        if acl.host == WILDCARD:
            self._anywhere = (*self._anywhere, acl)
        elif (network := network_of(acl.host)) is None:
            self._exact = self._exact or {}
            self._exact.setdefault(one_form(acl.host), []).append(acl)
        else:
            self._networks = self._networks or _Networks()
            self._networks.add(network, acl)

    def remove(self, acl: Acl) -> None:
        if acl.host == WILDCARD:
            self._anywhere = tuple(each for each in self._anywhere if each != acl)
        elif (network := network_of(acl.host)) is None:
            assert self._exact is not None, acl
            _remove_from(self._exact, one_form(acl.host), acl)
        else:
            assert self._networks is not None, acl
            self._networks.remove(network, acl)

    def find(self, host: str) -> Acl | None:
        if self._anywhere:
            return self._anywhere[0]
        if self._exact and (found := self._exact.get(one_form(host))):
            return found[0]
        return self._networks.find(host) if self._networks else None

    def __bool__(self) -> bool:
        return bool(self._anywhere or self._exact or self._networks)


class _Networks:
    """Entries for networks, by each length of a network that there is."""

    __slots__ = ("_entries", "_lengths")

    def __init__(self) -> None:
        self._entries: dict[Network, list[Acl]] = {}
        self._lengths: Counter[tuple[int, int]] = Counter()

    def add(self, network: Network, acl: Acl) -> None:
        self._entries.setdefault(network, []).append(acl)
        self._lengths[network[:2]] += 1

    def remove(self, network: Network, acl: Acl) -> None:
        _remove_from(self._entries, network, acl)
        self._lengths[network[:2]] -= 1
        if not self._lengths[network[:2]]:
            del self._lengths[network[:2]]

    def find(self, host: str) -> Acl | None:
        address = _address(host)
        if address is not None:
            version, bits, value = address
            for of_version, length in self._lengths:
                if of_version == version:
                    found = self._entries.get((version, length, value >> bits - length))
                    if found:
                        return found[0]
        return None

    def __bool__(self) -> bool:
        return bool(self._entries)


def _remove_from(entries: dict[K, list[Acl]], key: K, acl: Acl) -> None:
    entries[key].remove(acl)
    if not entries[key]:
        del entries[key]


Side = dict[str, dict[int, _Hosts]]
# Of all patterns: nothing is put in.
_NOTHING: Side = {}


class Pattern:
    """The entries of one resource pattern, by principal and operation."""

    __slots__ = ("allowed", "denied", "name", "prefixed", "size")

    def __init__(self, name: str, prefixed: bool) -> None:
        self.name = name
        self.prefixed = prefixed
        self.size = 0
        # Most patterns have only ALLOW or only DENY.
        self.denied: Side = _NOTHING
        self.allowed: Side = _NOTHING

    def _side(self, acl: Acl) -> Side:
        return self.denied if acl.permission_type == _DENY else self.allowed

    def _make_side(self, acl: Acl) -> None:
        if acl.permission_type == _DENY:
            self.denied = self.denied or {}
        else:
            self.allowed = self.allowed or {}

    def add(self, acl: Acl) -> None:
        """Put in an entry."""
        self._make_side(acl)
        # The same string object for all patterns, so that comparisons do not read distant copies.
        operations = self._side(acl).setdefault(sys.intern(acl.principal), {})
        for operation in _covered(acl):
            operations.setdefault(operation, _Hosts()).add(acl)
        self.size += 1

    def remove(self, acl: Acl) -> None:
        """Take out an entry that was put in."""
        side = self._side(acl)
        operations = side[acl.principal]
        for operation in _covered(acl):
            operations[operation].remove(acl)
            if not operations[operation]:
                del operations[operation]
        if not operations:
            del side[acl.principal]
        self.size -= 1


def find_rule(side: Side, principal: str, operation: int, host: str) -> Acl | None:
    """The first entry of one side of a pattern that speaks of all three."""
    for name in (principal, EVERYBODY):
        operations = side.get(name)
        if operations is not None:
            for covering in (operation, _ALL):
                hosts = operations.get(covering)
                if hosts is not None and (found := hosts.find(host)) is not None:
                    return found
    return None


def _allows(acl: Acl) -> list[tuple[str, int]]:
    """Principal and each operation that an entry allows; nothing of one that denies."""
    return [(acl.principal, operation) for operation in _covered(acl)] if acl.permission_type == _ALLOW else []


@dataclass(slots=True)
class _OneType:
    """The patterns of one type of resource."""

    literals: dict[str, Pattern] = field(default_factory=dict)
    prefixes: Prefixes[Pattern] = field(default_factory=Prefixes)
    # Which patterns allow an operation to a principal, for the questions about any resource.
    allowing: dict[tuple[str, int], Counter[Pattern]] = field(default_factory=dict)

    def add(self, acl: Acl) -> None:
        pattern = self._pattern(acl)
        if pattern is None:
            pattern = self._open(acl)
        pattern.add(acl)
        for key in _allows(acl):
            own = self.allowing.get(key)
            if own is None:
                own = self.allowing[key] = Counter()
            own[pattern] = own.get(pattern, 0) + 1

    def remove(self, acl: Acl) -> None:
        pattern = self._pattern(acl)
        assert pattern is not None, acl
        pattern.remove(acl)
        for key in _allows(acl):
            own = self.allowing[key]
            own[pattern] -= 1
            if not own[pattern]:
                del own[pattern]
            if not own:
                del self.allowing[key]
        if not pattern.size:
            if pattern.prefixed:
                self.prefixes.remove(pattern.name)
            else:
                del self.literals[pattern.name]

    def _pattern(self, acl: Acl) -> Pattern | None:
        prefixed = acl.pattern_type == _PREFIXED
        return self.prefixes.get(acl.resource_name) if prefixed else self.literals.get(acl.resource_name)

    def _open(self, acl: Acl) -> Pattern:
        pattern = Pattern(acl.resource_name, acl.pattern_type == _PREFIXED)
        if pattern.prefixed:
            self.prefixes.add(pattern.name, pattern)
        else:
            self.literals[pattern.name] = pattern
        return pattern


class AclIndex:
    """All entries of the cluster; equal ones count once, however many ids they have."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._types: dict[int, _OneType] = {}
        self._often: Counter[Acl] = Counter()
        for acl in acls:
            self.add(acl)

    def add(self, acl: Acl) -> None:
        """Put in an entry."""
        count = self._often[acl] = self._often.get(acl, 0) + 1
        if count == 1:
            self._types.setdefault(acl.resource_type, _OneType()).add(acl)

    def remove(self, acl: Acl) -> None:
        """Take out an entry that was put in."""
        self._often[acl] -= 1
        if not self._often[acl]:
            del self._often[acl]
            self._types[acl.resource_type].remove(acl)

    def __len__(self) -> int:
        return len(self._often)

    def matching(self, resource_type: int, name: str) -> list[Pattern]:
        """All patterns that speak of a resource, the most specific first."""
        of_type = self._types.get(resource_type)
        if of_type is None:
            return []
        literals, found = of_type.literals, of_type.prefixes.of(name)
        if name in literals:
            found.insert(0, literals[name])
        if WILDCARD in literals and name != WILDCARD:
            found.append(literals[WILDCARD])
        return found

    def allows_any(self, principal: str, operation: int, host: str, resource_type: int) -> bool:
        """Whether an entry allows the operation on some resource of the type, and none that denies covers that entry.

        As Kafka's `authorizeByResourceType` (KIP-679): first decide the entries for all names, one that denies before
        one that allows, whatever prefixes are denied.
        """
        of_type = self._types.get(resource_type)
        if of_type is None:
            return False
        for_all = of_type.literals.get(WILDCARD)
        if for_all is not None:
            if find_rule(for_all.denied, principal, operation, host) is not None:
                return False
            if find_rule(for_all.allowed, principal, operation, host) is not None:
                return True
        for name, covering in product((principal, EVERYBODY), (operation, _ALL)):
            for pattern in of_type.allowing.get((name, covering), ()):
                if find_rule(pattern.allowed, principal, operation, host) is not None:
                    covered_by = [pattern, *of_type.prefixes.of(pattern.name)]
                    if not any(find_rule(each.denied, principal, operation, host) for each in covered_by):
                        return True
        return False
