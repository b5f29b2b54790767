"""The programs of docs/spark*.md that write run as they are on the page, but for addresses and folders."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.standby.commit import current_lease
from tests.spark.queries import load_stream, numbered
from tests.spark.stores import PostgresStore
from tests.spark.test_exact_sink import copied, remove_commit
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.nodes.postgres import Postgres

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs").glob("spark*.md"))


def example(marks: str, **replaced: str) -> str:
    """The one block of Python with these words, with its places replaced: each must be there."""
    blocks = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]
    (code,) = [each for each in blocks if marks in each]
    for place, ours in replaced.items():
        found = {"bootstrap": "localhost:9092", "postgres": "postgresql://user@host/shop"}.get(place, f"/{place}/")
        assert found in code, f"the example has no {found}"
        code = code.replace(found, ours)
    return str(code)


def run(spark: Any, code: str, **frames: Any) -> None:
    """Run an example until its queries have done what there is to do."""
    try:
        exec(code, {"spark": spark, **frames})  # the code is that of our own page
        queries = spark.streams.active
        assert len(queries) == code.count(".start(")
        for query in queries:
            query.processAllAvailable()
            assert query.exception() is None
    finally:
        for query in spark.streams.active:
            query.stop()


def numbers(spark: Any, bootstrap: str, topic: str, *columns: str) -> Any:
    create_topic(bootstrap, topic, 2)
    numbered(bootstrap, topic, range(100))
    return load_stream(spark, bootstrap, subscribe=topic).selectExpr(*columns)


@pytest.mark.slow
def test_three_tables(spark: Any, odradek: str, postgres: Postgres, topic: str, tmp_path: Path) -> None:
    iceberg = pytest.importorskip("pyiceberg.catalog", reason='needs pyiceberg: pip install "odradek[iceberg]"')
    orders = numbers(spark, odradek, topic, "BIGINT(STRING(value)) order_id", "STRING(key) customer")
    lake = tmp_path / "lake"
    lake.mkdir()
    store = PostgresStore(postgres, "orders")
    store.query("CREATE TABLE orders (order_id bigint PRIMARY KEY, customer text)")
    places = {"lake": f"{lake}/", "checkpoints": f"{tmp_path}/checkpoints/", "postgres": postgres.url}
    code = example('options(sink="delta"', **places).replace("file:///lake", f"file://{lake}")
    for part in code.split("\n\n"):  # one store after another: their processes load much
        run(spark, part, orders=orders)
    expected = list(range(100))
    assert [row[0] for row in store.query("SELECT order_id FROM orders ORDER BY 1")] == expected
    assert sorted(DeltaTable(lake / "orders").to_pyarrow_table()["order_id"].to_pylist()) == expected
    catalog = iceberg.load_catalog("default", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
    found = catalog.load_table("shop.orders").scan().to_arrow()
    assert sorted(found["order_id"].to_pylist()) == expected


def test_rows_by_key(spark: Any, odradek: str, tmp_path: Path) -> None:
    create_topic(odradek, "people")
    produce_all(odradek, "people", [(b"a", b'{"name": "A"}'), (b"b", b'{"name": "B"}'), (b"a", None), (b"c", b"{}")])
    code = example("deleteColumn", bootstrap=odradek, checkpoints=f"{tmp_path}/checkpoints/", lake=f"{tmp_path}/lake/")
    run(spark, code)
    found = DeltaTable(tmp_path / "lake" / "people").to_pyarrow_table().sort_by("id").to_pylist()
    assert found == [{"id": "b", "name": "B", "town": None}, {"id": "c", "name": None, "town": None}]


def test_foreach_batch(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    """Run again after a crash between the store's commit and Spark's, too: each row is there once."""
    visits = numbers(spark, odradek, topic, "STRING(value) page", "1.5D seconds")
    code = example("foreachBatch", data=f"{tmp_path}/", checkpoints=f"{tmp_path}/")
    (tmp_path / "checkpoint").symlink_to(tmp_path / "visits")  # where `remove_commit` looks
    for lost in (True, False):
        run(spark, code, visits=visits)
        if lost:
            remove_commit(tmp_path)
            numbered(odradek, topic, range(100, 150))
    with sqlite3.connect(tmp_path / "shop.db") as store:
        found = sorted(int(page) for page, seconds in store.execute("SELECT * FROM visits") if seconds == 1.5)
    store.close()
    assert found == list(range(150))


def test_standing_by(spark: Any, odradek: str, topic: str, tmp_path: Path) -> None:
    code = example('"gate": "balances"', bootstrap=odradek, checkpoints=f"{tmp_path}/")
    code = code.replace('"movements"', f'"{topic}"').replace('"balances"', f'"{topic}-copy"')
    for name in (topic, f"{topic}-copy"):
        create_topic(odradek, name, 2)
    numbered(odradek, topic, range(100))
    run(spark, code)
    assert copied(odradek, topic) == list(range(100))
    cluster = Cluster(ClientSettings.parse({"bootstrap.servers": odradek}))
    # The last transaction is answered before the gate is seen to move.
    while (gate := current_lease(cluster, f"{topic}-copy")) is None or sum(gate.covered.values()) != 100:
        time.sleep(0.01)
    cluster.close()
    assert gate.group == "a"
