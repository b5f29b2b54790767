"""The filters of a link for groups and ACLs, in the JSON of Confluent's cluster links."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

ANY_NAME = "*"
_GROUP_KEYS = frozenset({"name", "patternType", "filterType"})
_ACL_PARTS = {
    "resourceFilter": frozenset({"resourceType", "patternType", "name"}),
    "accessFilter": frozenset({"principal", "host", "operation", "permissionType"}),
}
_RESOURCE_TYPES = ("ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERN_TYPES = ("ANY", "MATCH", "LITERAL", "PREFIXED")
_PERMISSION_TYPES = ("ANY", "DENY", "ALLOW")
_OPERATIONS = (
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Groups of a name, or of names that begin so; ANY_NAME is all."""

    name: str
    is_prefix: bool
    is_included: bool

    def matches(self, group: str) -> bool:
        if self.name == ANY_NAME:
            return True
        return group.startswith(self.name) if self.is_prefix else group == self.name


def parse_group_filters(text: str) -> tuple[GroupFilter, ...]:
    """`{"groupFilters": [{"name": "billing", "patternType": "PREFIXED", "filterType": "INCLUDE"}]}`; empty for none.

    Raises:
        ValueError: it cannot be read.
    """
    found = []
    for entry in _entries(text, "groupFilters", _GROUP_KEYS):
        name, pattern = entry.get("name"), entry.get("patternType", "LITERAL")
        kind = entry.get("filterType", "INCLUDE")
        if not isinstance(name, str) or not name:
            raise ValueError("each filter must have a name")
        if pattern not in ("LITERAL", "PREFIXED") or kind not in ("INCLUDE", "EXCLUDE"):
            raise ValueError("patternType is LITERAL or PREFIXED, filterType is INCLUDE or EXCLUDE")
        found.append(GroupFilter(name, pattern == "PREFIXED", kind == "INCLUDE"))
    return tuple(found)


def follows_group(filters: Iterable[GroupFilter], group: str) -> bool:
    """Whether some filter has the group, and none leaves it out."""
    matching = [each.is_included for each in filters if each.matches(group)]
    return bool(matching) and all(matching)


@dataclass(frozen=True, slots=True)
class AclWords:
    """The ACLs of a filter, in the words of Kafka's protocol; ANY and None are all values of a field."""

    resource_type: str
    pattern_type: str
    name: str | None
    principal: str | None
    host: str | None
    operation: str
    permission_type: str


def parse_acl_filters(text: str) -> tuple[AclWords, ...]:
    """Parse the filters of ACLs that follow, in JSON; empty for none.

    Such as `{"aclFilters": [{"resourceFilter": {"resourceType": "topic", "patternType": "literal", "name": "orders"},
    "accessFilter": {"principal": "User:bob", "operation": "read", "permissionType": "allow", "host": "*"}}]}`. Omitted
    fields match any value, but a filter has at least one field.

    Raises:
        ValueError: it is invalid.
    """
    return tuple(_acl_words(entry) for entry in _entries(text, "aclFilters", frozenset({*_ACL_PARTS})))


def _acl_words(entry: dict[str, Any]) -> AclWords:
    fields: dict[str, str | None] = {}
    for part, known in _ACL_PARTS.items():
        given = entry.get(part, {})
        if not isinstance(given, dict):
            raise ValueError(f"{part} must be an object")
        for key, value in given.items():
            if key not in known or not isinstance(value, str):
                raise ValueError(f"{key} of {part} must be a text, and one of {', '.join(sorted(known))}")
            fields[key] = value
    if not fields:
        raise ValueError("each filter must have a condition; one of all ACLs says so, as by operation any")
    return AclWords(
        resource_type=_word("resourceType", fields, _RESOURCE_TYPES),
        pattern_type=_word("patternType", fields, _PATTERN_TYPES),
        name=fields.get("name"),
        principal=fields.get("principal"),
        host=fields.get("host"),
        operation=_word("operation", fields, _OPERATIONS),
        permission_type=_word("permissionType", fields, _PERMISSION_TYPES),
    )


def _word(key: str, fields: dict[str, str | None], words: tuple[str, ...]) -> str:
    """The word of the protocol for one of the ways to write it: TransactionalId, transactional-id, TRANSACTIONAL_ID."""
    given = (fields.get(key, "ANY") or "").upper().replace("-", "").replace("_", "")
    found = next((word for word in words if word.replace("_", "") == given), None)
    if found is None:
        raise ValueError(f"{key} is one of {', '.join(words)}")
    return found


def _entries(text: str, list_name: str, keys: frozenset[str]) -> list[dict[str, Any]]:
    if not text.strip():
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("must be JSON") from None
    entries = found.get(list_name) if isinstance(found, dict) and len(found) == 1 else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError(f'must be {{"{list_name}": […]}}')
    unknown = sorted({key for each in entries for key in each} - keys)
    if unknown:
        raise ValueError(f"{unknown[0]} is none of {', '.join(sorted(keys))}")
    return entries
