"""One Spark session for the whole folder, and the clusters that the connector is tried against.

A test that takes `bootstrap` runs against our node and against Apache Kafka: the connector promises both. The second is
a slow test, but where the test is `ON_BOTH`: one for each way in which the connector speaks to a cluster.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark import jvm
from tests.spark.stores import Copies, DeltaStore, IcebergStore, PostgresStore, Store, TaskWritersCopy, TopicCopy
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import ApacheKafka, KafkaUnavailableError, find_java, require_kafka
from tests.support.nodes.forked_readers import forked_readers
from tests.support.nodes.node import Node
from tests.support.nodes.postgres import Postgres

FOLDER = Path(__file__).parent
TOPIC_COPIES = {"topic": TopicCopy, "tasks": TaskWritersCopy}
_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here as Spark tests, and ignore warnings of Spark's own Python code.

    The first query of a virtual machine takes most of a minute where the machine is busy, and a test may have several.
    """
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session, made by our helper; skips where there is no Java."""
    try:
        find_java()
    except KafkaUnavailableError as error:
        pytest.skip(f"needs Java 17 for Spark: {error}")
    from pyspark_odradek import session

    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    # Queries over a few rows live for a second: the second compiler and generated code would only cost them time.
    config = {"spark.sql.shuffle.partitions": 2, "spark.sql.codegen.wholeStage": "false"}
    with tempfile.TemporaryDirectory(prefix="readers-") as folder, forked_readers(Path(folder)) as python:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", jvm.options())
            for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
                patch.setenv(name, python)
            running = session("tests", master="local[2]", log_file=log_file, config=config)
        yield running
        running.stop()


@pytest.fixture(scope="session")
def odradek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a node of ours."""
    with Node(tmp_path_factory.mktemp("odradek")) as node:
        yield node.bootstrap


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a node of Apache Kafka; skips where it is not available."""
    require_kafka()
    directory = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(directory, heap="300m") as node:
        yield node.bootstrap
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["odradek", pytest.param("kafka", marks=pytest.mark.slow)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """host:port of one cluster after the other."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"spark-{next(_numbers)}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server of PostgreSQL."""
    pytest.importorskip("psycopg", reason='needs psycopg: pip install "odradek[postgres]"')
    with Postgres() as server:
        yield server


@pytest.fixture
def table() -> str:
    """A name that no other test has."""
    return f"rows_{next(_numbers)}"


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, table: str) -> Store:
    """One that no other test has, of the kind that is asked for; Delta where none is."""
    return table_store(getattr(request, "param", "delta"), request, tmp_path, table)


@pytest.fixture
def copies(request: pytest.FixtureRequest, tmp_path: Path, table: str, odradek: str, topic: str) -> list[Copies]:
    """The stores that tests.spark.copy_job writes to, of the requested kinds; the job works in the folder `job`."""
    made: list[Copies] = []
    for kind in request.param.split():
        if kind in TOPIC_COPIES:
            create_topic(odradek, f"{topic}-copy", 2)
            made.append(TOPIC_COPIES[kind](odradek, f"{topic}-copy", tmp_path / "job"))
        else:
            folder = tmp_path / kind
            folder.mkdir()
            made.append(table_store(kind, request, folder, table))
    return made


def table_store(kind: str, request: pytest.FixtureRequest, folder: Path, table: str) -> Store:
    if kind == "postgres":
        return PostgresStore(request.getfixturevalue("postgres"), table)
    return DeltaStore(folder) if kind == "delta" else IcebergStore(folder)
