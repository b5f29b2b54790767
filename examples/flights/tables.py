"""The Delta tables of the demo as readers see them: how many rows they have, and DuckDB over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable


def rows_in(path: Path) -> int:
    """How many rows a table has, by its log alone; none where it is not there yet."""
    return DeltaTable(str(path)).count() if DeltaTable.is_deltatable(str(path)) else 0


def connect(tables: dict[str, Path]) -> duckdb.DuckDBPyConnection:
    """DuckDB with each Delta table as a view; through Arrow, so that no extension has to be fetched."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, path in tables.items():
        dataset: Any = DeltaTable(str(path)).to_pyarrow_dataset()
        connection.register(name, dataset)
    return connection
