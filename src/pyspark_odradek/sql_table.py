"""Tables of SQL: `CREATE TABLE clicks USING odradek OPTIONS (…)` keeps its options where a query finds them.

Spark hands a Python source the options of a table when it is created, and none when it is read or written: only its
columns come back. So the options lie in the metadata of one of them, as JSON. Spark carries the metadata of a column
into tables that are made from it. So it is the column `timestampType`, which those seldom have, under a name of ours,
which DESCRIBE does not show. It is no place for a password: those are given with each query, by `WITH (…)`, whose
options go before the table's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from pyspark_odradek.errors import OptionError
from pyspark_odradek.options import READ_OPTIONS, SECRET, WRITE_OPTIONS, lowered

COLUMN, KEPT = "timestampType", "odradek.options"
COLUMNS_ARE_BY = (
    "includeheaders",
    "valueformat",
    "valueschema",
    "valuemessage",
    "schemaregistrysubject",
    "schemaregistryreferences",
)
OF_A_TABLE = "option."  # Spark's prefix of a table's options, which it passes with and without it


def is_of_a_table(given: Mapping[str, str]) -> bool:
    """Whether these are the options of a table that is being created, and not those of a query."""
    return any(name.lower().startswith(OF_A_TABLE) for name in given)


def with_options(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The columns of a table, with its options in the metadata of COLUMN.

    Raises:
        OptionError: an option is a secret.
    """
    kept = _kept(given)
    secrets = sorted(name for name in kept if SECRET.search(name))
    if secrets:
        raise OptionError(
            f"{', '.join(secrets)} may not be an option of a table: everybody can read those in the catalog, and in "
            f"files that are made from it. Give it with each query, behind the table: WITH (`{secrets[0]}` = '…')"
        )
    metadata = {KEPT: json.dumps(kept, sort_keys=True)}
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, metadata if field.name == COLUMN else None)
            for field in schema
        ]
    )


def options_of(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a query: those that are given, and beneath them those of the table whose columns these are.

    Raises:
        OptionError: there are none at all, as of a table that was created with columns of its own.
    """
    kept = _of_the_table(schema)
    if kept is not None:
        return kept | lowered(given)
    if not given:
        raise OptionError(
            "there are no options: create a table without columns, by CREATE TABLE … USING odradek OPTIONS (…): its "
            "columns are the format's; or give them behind the table: WITH (`kafka.bootstrap.servers` = …)"
        )
    return dict(given)


def to_read(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a query that reads, as `options_of` has them.

    Raises:
        OptionError: it asks for other columns than the table has.
    """
    options = options_of(schema, given)
    kept = _of_the_table(schema)
    if kept is None:
        return options
    for name in COLUMNS_ARE_BY:
        if options.get(name) != kept.get(name):
            raise OptionError(
                f"{name} cannot be given behind a table, whose columns stay as they were made: make another with it"
            )
    return options


def _of_the_table(schema: StructType) -> dict[str, str] | None:
    for field in schema:
        if field.name == COLUMN and KEPT in (field.metadata or {}):
            kept: dict[str, str] = json.loads(field.metadata[KEPT])
            return kept
    return None


def to_write(schema: StructType, given: Mapping[str, str]) -> dict[str, str]:
    """The options of an INSERT: of a table's only those that have a meaning for writing; its topic is the one it reads.

    A query that names its cluster writes there: the column that it writes may come from a table of another one.

    Raises:
        OptionError: the table reads several topics, and none is named for writing.
    """
    if lowered(given).keys() & {"kafka.bootstrap.servers", "sink"}:
        return dict(given)
    options = options_of(schema, given)
    names = {name.lower() for name in WRITE_OPTIONS}
    kept = {name: value for name, value in options.items() if name in names or name.startswith("kafka.")}
    if "topic" not in kept:
        subject = options.get("subscribe", "")
        if not subject.strip() or "," in subject:
            raise OptionError("the table reads no single topic: set its option topic, which INSERT writes to")
        kept["topic"] = subject.strip()
    return kept


def _kept(given: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower() for name in [*READ_OPTIONS, *WRITE_OPTIONS]}
    options = lowered(given)
    return {name: value for name, value in options.items() if name in names or name.startswith("kafka.")}
