"""A topic as a view of SQL."""

from __future__ import annotations

from typing import Any

from tests.spark.queries import numbered
from tests.support.clients import create_topic


def test_a_topic_is_a_view(spark: Any, odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 2)
    numbered(odradek, topic, range(10))
    spark.sql(
        f"CREATE TEMPORARY VIEW numbers USING odradek OPTIONS (`kafka.bootstrap.servers` '{odradek}', "
        f"subscribe '{topic}')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, sum(INT(STRING(value))) AS total FROM numbers").collect()
    assert (row.n, row.total) == (10, 45)
    spark.sql("DROP VIEW numbers")
