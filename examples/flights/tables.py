"""Delta tables that take each batch of a query once, and a DuckDB connection that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


class ExactlyOnceTable:
    """A Delta table as a sink of `foreachBatch`.

    Each commit bears the batch's number in the same atomic step as its rows; a batch that Spark runs again finds its
    number there and is left out. delta-rs keeps the number but does not refuse an old one: that is for us to look at.

    Args:
        path: of the table; made by the first batch.
        query: a name that stays the same for the life of the query's checkpoint.
    """

    def __init__(self, path: Path, query: str) -> None:
        self.path = path
        self.query = query
        self.rows = 0

    def has(self, batch_id: int) -> bool:
        """Whether this batch was committed before."""
        if not DeltaTable.is_deltatable(str(self.path)):
            return False
        version = DeltaTable(str(self.path)).transaction_version(self.query)
        return version is not None and version >= batch_id

    def append(self, rows: pa.Table, batch_id: int) -> bool:
        """Append one batch's rows; returns False where they were there already."""
        if self.has(batch_id):
            return False
        marker = CommitProperties(app_transactions=[Transaction(app_id=self.query, version=batch_id)])
        write_deltalake(str(self.path), in_utc(rows), mode="append", commit_properties=marker)
        self.rows += rows.num_rows
        return True


def in_utc(rows: pa.Table) -> pa.Table:
    """Times in the zone named UTC; Spark may call it Etc/UTC, which Delta does not know."""
    fields = [
        pa.field(field.name, pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def connect(tables: dict[str, Path]) -> duckdb.DuckDBPyConnection:
    """DuckDB with each Delta table as a view; through Arrow, so that no extension has to be fetched."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, path in tables.items():
        dataset: Any = DeltaTable(str(path)).to_pyarrow_dataset()
        connection.register(name, dataset)
    return connection
