"""What crosses a link besides records: lists of groups and of ACLs, in the JSON that Confluent's cluster links take."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

ANY_NAME = "*"
_GROUP_KEYS = frozenset({"name", "patternType", "filterType"})


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
