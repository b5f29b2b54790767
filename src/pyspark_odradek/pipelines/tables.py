"""Stores the definitions of tables between runs, because Spark's built-in catalog is in memory.

A pipeline without a catalog of its own uses Spark's session catalog. Its tables are Parquet files below the storage,
and Spark refuses to create a table over existing files. So a run stores the definitions of its tables, and the next
run restores them to its catalog. A persistent catalog (`catalog:` in the spec, or Hive) needs nothing of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark_odradek.pipelines.engine import Engine, columns_of
from pyspark_odradek.pipelines.graph import TABLE, VIEW, Column, Graph
from pyspark_odradek.pipelines.notes import TABLES, Notes
from pyspark_odradek.pipelines.plans import texts
from pyspark_odradek.pipelines.refusals import name_of

_TABLE_TYPE = "org.apache.spark.sql.catalyst.catalog.CatalogTableType"
# The index of the type among the fields of a CatalogTable.
_TYPE_FIELD = 1


def restore(engine: Engine, notes: Notes) -> None:
    """Restore the tables of earlier runs that still exist to the session's catalog."""
    if not _is_in_memory(engine):
        return
    session = engine.session
    catalog = session.sessionState().catalog()
    for entry in notes.read(TABLES) or []:
        if not _folder(entry["location"]).is_dir():
            continue
        session.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(entry['database'])}")
        name = f"{_quoted(entry['database'])}.{_quoted(entry['table'])}"
        parts = (
            f"PARTITIONED BY ({', '.join(map(_quoted, entry['partitioned_by']))}) " if entry["partitioned_by"] else ""
        )
        ddl = engine.jvm.org.apache.spark.sql.types.DataType.fromJson(entry["schema"]).toDDL()
        options = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in entry["properties"].items())
        properties = f" TBLPROPERTIES ({options})" if options else ""
        session.sql(
            f"CREATE TABLE IF NOT EXISTS {name} ({ddl}) USING {entry['provider']} {parts}"
            f"LOCATION {_text(entry['location'])}{properties}"
        )
        _make_managed(engine, catalog, entry)


def _make_managed(engine: Engine, catalog: Any, entry: dict[str, Any]) -> None:
    """Make a table a managed one. Spark does not truncate an external table, which one with a location is."""
    identifier = engine.identifier(entry["table"], entry["database"])
    table = catalog.getTableMetadata(identifier)
    values = [getattr(table, f"copy$default${number}")() for number in range(1, table.productArity() + 1)]
    values[_TYPE_FIELD] = engine.object_of(_TABLE_TYPE).MANAGED()
    catalog.externalCatalog().alterTable(table.copy(*values))


def store(engine: Engine, notes: Notes, graph: Graph) -> None:
    """Store the definitions of the graph's tables that are in the session's catalog."""
    if not _is_in_memory(engine):
        return
    entries = {(entry["database"], entry["table"]): entry for entry in notes.read(TABLES) or []}
    for table in _existing(engine, graph):
        identifier = table.identifier()
        entries[identifier.database().get(), identifier.table()] = {
            "database": identifier.database().get(),
            "table": identifier.table(),
            "provider": table.provider().get(),
            "schema": table.schema().json(),
            "partitioned_by": engine.listed(table.partitionColumnNames()),
            "properties": texts(table.properties()),
            "location": table.location().toString(),
        }
    notes.write(TABLES, list(entries.values()))


def existing(engine: Engine, graph: Graph) -> dict[str, Sequence[Column]]:
    """The columns of the graph's tables that are in the session's catalog."""
    return {name_of(table.identifier()): columns_of(table.schema()) for table in _existing(engine, graph)}


def refresh(engine: Engine, graph: Graph) -> None:
    """Refresh the session's lists of files of the tables: continuous streams have added files."""
    for table in _existing(engine, graph):
        engine.session.catalog().refreshTable(table.identifier().quotedString())


def _existing(engine: Engine, graph: Graph) -> list[Any]:
    catalog = engine.session.sessionState().catalog()
    found = []
    for node in graph.nodes:
        if node.kind not in (TABLE, VIEW):
            continue
        database, _, name = node.name.rpartition(".")
        identifier = engine.identifier(name, database or engine.project.database or "default")
        if catalog.tableExists(identifier):
            found.append(catalog.getTableMetadata(identifier))
    return found


def _is_in_memory(engine: Engine) -> bool:
    return engine.project.catalog in (None, "spark_catalog") and (
        engine.classic.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"
    )


def _folder(location: str) -> Path:
    return Path(unquote(urlsplit(location).path))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
