"""An Avro schema with the types of other schemas in it, where it names them.

A schema of a registry may refer to others, whose types it uses by their full names. Readers and writers have one
schema, in which each type is described where it is named first, and named from then on, as the specification wants it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


def whole(schema: str, needed: Mapping[str, str]) -> str:
    """A schema in JSON that has in it what it names of other ones.

    Args:
        schema: in JSON.
        needed: the schemas that it refers to, in JSON; the names do not matter, since their types have names.
    """
    if not needed:
        return schema
    try:
        parts = _Parts(json.loads(text) for text in needed.values())
        return json.dumps(parts.within(json.loads(schema), ""))
    except (ValueError, RecursionError):  # the parser of the whole schema says what is wrong with it
        return schema


class _Parts:
    """The types of the other schemas by their full names, and which of them are described already."""

    def __init__(self, schemas: Any) -> None:
        self._types: dict[str, tuple[dict[str, Any], str]] = {}  # with the namespace that the type is in
        self._described: set[str] = set()
        for schema in schemas:
            self._find(schema, "")

    def _find(self, schema: Any, space: str) -> None:
        if isinstance(schema, list):
            for branch in schema:
                self._find(branch, space)
        if not isinstance(schema, dict):
            return
        if schema.get("type") in _NAMED:
            name = _full_name(schema, space)
            self._types.setdefault(name, (schema, space))
            space = name.rpartition(".")[0]
        for part in _parts(schema):
            self._find(part, space)

    def within(self, schema: Any, space: str) -> Any:
        """A part of the schema, in a namespace, with what it names of other schemas."""
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if isinstance(schema, list):
            return [self.within(branch, space) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        found = dict(schema)
        if found.get("type") in _NAMED:
            name = _full_name(schema, space)
            if name in self._described and name in self._types:
                return name
            self._described.add(name)
            space, _, found["name"] = name.rpartition(".")
            found["namespace"] = space
        elif "type" in found:
            found["type"] = self.within(found["type"], space)
        for key in ("items", "values"):
            if key in found:
                found[key] = self.within(found[key], space)
        if isinstance(found.get("fields"), list):
            found["fields"] = [
                field | {"type": self.within(field["type"], space)} if _has_type(field) else field
                for field in found["fields"]
            ]
        return found

    def _by_name(self, name: str, space: str) -> str | Any:
        if name in _PRIMITIVES:
            return name
        for full in (name if "." in name or not space else f"{space}.{name}", name):
            if full in self._described:
                return full
            if full in self._types:
                return self.within(*self._types[full])
        return name


def _full_name(schema: dict[str, Any], space: str) -> str:
    name = str(schema.get("name"))
    if "." in name:
        return name
    space = schema.get("namespace", space)
    return f"{space}.{name}" if space else name


def _has_type(field: Any) -> bool:
    return isinstance(field, dict) and "type" in field


def _parts(schema: dict[str, Any]) -> list[Any]:
    """The schemas within a type: of its fields, items, values, or its own under `type`."""
    fields = schema.get("fields")
    found = [field["type"] for field in fields if _has_type(field)] if isinstance(fields, list) else []
    return found + [schema[key] for key in ("type", "items", "values") if key in schema]
