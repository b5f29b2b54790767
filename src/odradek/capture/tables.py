"""The tables of a capture: their names at its start, whatever they are called later, and the types of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odradek.capture.pgoutput import Change, Message, Relation, Truncate

# By the oid of a domain, the oid and the modifier of its base type.
Domains = Mapping[int, tuple[int, int]]


class CapturedTables:
    """Finds the changes of these tables.

    Args:
        names: of the tables, by their oid, as schema.table.
        domains: of the database.
    """

    def __init__(self, names: Mapping[int, str], domains: Domains) -> None:
        self._names = names
        self._domains = domains
        self._relations: dict[int, tuple[Relation, Relation]] = {}

    def ours(self, message: Message | None) -> Change | Truncate | None:
        """A change with the tables as they are known here; None for tables that are captured no more."""
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
    """A column of a domain has the type that the domain is made of."""
    columns = []
    for column in relation.columns:
        oid, modifier = domains.get(column.type_oid, (column.type_oid, column.type_modifier))
        columns.append(replace(column, type_oid=oid, type_modifier=modifier))
    return replace(relation, columns=tuple(columns))
