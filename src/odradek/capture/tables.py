"""The tables of a capture: their names at its start, also if they are renamed later, and their column types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odradek.capture.pgoutput import Change, Message, Relation, Truncate

# By the oid of a domain, the oid and the modifier of its base type.
Domains = Mapping[int, tuple[int, int]]


class CapturedTables:
    """Selects the changes of these tables.

    Args:
            names: oid -> the table as schema.table.
            domains: the domains of the database.
    """

    def __init__(self, names: Mapping[int, str], domains: Domains) -> None:
        self._names = names
        self._domains = domains
        self._relations: dict[int, tuple[Relation, Relation]] = {}

    def ours(self, message: Message | None) -> Change | Truncate | None:
        """A change with the names of the capture's start; None for tables that are not captured."""
        if isinstance(message, Change):
            relation = self._known(message.relation)
            return None if relation is None else replace(message, relation=relation)
        if isinstance(message, Truncate):
            relations = tuple(known for each in message.relations if (known := self._known(each)) is not None)
            return replace(message, relations=relations) if relations else None
        return None

    def _known(self, relation: Relation) -> Relation | None:
        name = self._names.get(relation.oid)
        if name is None:
            return None
        found = self._relations.get(relation.oid)
        if found is None or found[0] is not relation:
            schema, _, table = name.partition(".")
            columns = with_base_types(relation, self._domains).columns
            found = relation, Relation(relation.oid, schema, table, columns)
            self._relations[relation.oid] = found
        return found[1]


def with_base_types(relation: Relation, domains: Domains) -> Relation:
    """Replace the type of each column of a domain by the domain's base type."""
    columns = []
    for column in relation.columns:
        oid, modifier = domains.get(column.type_oid, (column.type_oid, column.type_modifier))
        columns.append(replace(column, type_oid=oid, type_modifier=modifier))
    return replace(relation, columns=tuple(columns))
