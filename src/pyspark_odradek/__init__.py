"""Spark over Odradek, or any Kafka cluster: the format `odradek` for batch and streaming, and a session with settings.

Spark finds the format by itself, because this package's name begins with `pyspark_` and it has a `DefaultSource`:

    from pyspark_odradek import session
    stream = session().readStream.format("odradek").option("kafka.bootstrap.servers", "localhost:9092")
    stream.option("subscribe", "clicks").load()
"""

from __future__ import annotations

try:
    from pyspark_odradek.data_source import OdradekDataSource as DefaultSource
    from pyspark_odradek.errors import ClusterError, DataLossError, LostRange, OptionError
    from pyspark_odradek.last_words import is_fenced, reason
    from pyspark_odradek.session import session
except ModuleNotFoundError as missing:
    if missing.name == "pyspark.sql.datasource":
        raise ModuleNotFoundError(
            "pyspark_odradek needs Spark 4.0 or newer: older ones have no Python data sources", name=missing.name
        ) from None
    package = (missing.name or "pyspark_odradek").partition(".")[0]
    if package in ("odradek", "pyspark_odradek"):
        raise  # one of our own: no installation of Spark would bring it
    raise ModuleNotFoundError(
        f"pyspark_odradek needs {package}, which is not installed: pip install 'odradek[spark]', and Java 17 or newer",
        name=missing.name,
    ) from None

__all__ = [
    "ClusterError",
    "DataLossError",
    "DefaultSource",
    "LostRange",
    "OptionError",
    "is_fenced",
    "reason",
    "session",
]
