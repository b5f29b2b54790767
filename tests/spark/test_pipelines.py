"""`odradek pipeline` with real processes, a real broker and real Spark: the life of one project."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.spark import jvm
from tests.support.clients.confluent import create_topic, produce_all, read_committed
from tests.support.nodes.apache_kafka import KafkaUnavailableError, find_java

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs the extra `pipelines`"),
]
# Queries over a few rows live for a second: the second compiler and generated code would only cost them time.
FAST = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}
# Spark gives a Python process ten seconds to begin, which a machine with other tests on it may not keep.
PATIENT = {
    "spark.sql.pipelines.execution.maxConcurrentFlows": "1",
    "spark.sql.pipelines.execution.watchdog.maxRetryTime": "10s",
    "spark.sql.pipelines.maxFlowRetryAttempts": "12",
}
LINES = [b"/a 5", b"/b 70", b"/c junk", b"/d 9", b"/a 4000"]
# An AUTO CDC flow: the newest line of each page; a line without a number deletes the page.
NEWEST = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

options = {{"sink": "delta", "path": "{path}", "keyColumns": "page", "deleteColumn": "gone"}}
dp.create_sink("newest", "odradek", options)


@dp.append_flow(target="newest")
def retain_newest():
    lines = SparkSession.active().readStream.table("arrivals").selectExpr("split(STRING(value), ' ') AS words")
    seconds = lines.selectExpr("words[0] AS page", "try_cast(words[1] AS INT) AS seconds")
    return seconds.selectExpr("*", "seconds IS NULL AS gone")
"""
# A view that is at work for as long as a file is there.
SLOW = """
import time
from pathlib import Path
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


@dp.materialized_view
def slow():
    def waiting(page):
        while Path("{hold}").exists():
            Path("{hold}.begun").touch()
            time.sleep(0.1)
        return page

    # One task, whatever the number of files: a second one would leave no slot of local[2] to the streams.
    visits = SparkSession.active().read.table("visits").coalesce(1)
    return visits.select(udf(waiting)("page").alias("page"))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "JAVA_TOOL_OPTIONS": jvm.options()}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "odradek", "pipeline", *arguments]


class Shop:
    """The project that `init` makes, with five lines in its topic."""

    def __init__(self, bootstrap: str, place: Path, topic: str) -> None:
        self.bootstrap, self.folder = bootstrap, place / "shop"
        create_topic(bootstrap, topic, 2)
        produce_all(bootstrap, topic, [(None, line) for line in LINES])
        began = self.call("init", "shop", "--bootstrap-server", bootstrap, "--topic", topic, where=place)
        assert began.returncode == 0, began.stderr
        self.lake = str(place / "lake")
        (self.folder / "transformations/newest.py").write_text(NEWEST.format(path=self.lake))
        spec = self.folder / "spark-pipeline.yml"
        settings = "".join(f"  {name}: '{value}'\n" for name, value in (FAST | PATIENT).items())
        spec.write_text(spec.read_text() + "configuration:\n" + settings)

    def call(self, *arguments: str, where: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=where or self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=500,
        )

    def rows(self, table: str, below: str = "storage/warehouse") -> list[dict[str, Any]]:
        """A table's rows, in the files that Spark has committed."""
        import pyarrow.parquet as pq

        folder = self.folder / below / table
        log = folder / "_spark_metadata"
        names = list(folder.glob("*.parquet"))
        if log.is_dir():
            reported = [line for file in log.glob("[0-9]*") for line in file.read_text().splitlines()[1:]]
            names = [folder / Path(json.loads(line)["path"]).name for line in reported]
        return [row for name in names for row in pq.read_table(name).to_pylist()]

    def newest(self) -> set[str]:
        """The pages of the Delta table that a sink fills."""
        from deltalake import DeltaTable

        return set(DeltaTable(self.lake).to_pyarrow_table()["page"].to_pylist())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call("status", "--json").stdout)
        return found


@pytest.fixture(scope="module")
def java() -> None:
    """Skips if there is no Java for Spark."""
    try:
        find_java()
    except KafkaUnavailableError as error:
        pytest.skip(f"needs Java 17 for Spark: {error}")


@pytest.fixture(scope="module")
def shop(java: None, odradek: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The project after `init` and one `run`."""
    made = Shop(odradek, tmp_path_factory.mktemp("pipelines"), "visits")
    assert "has not run yet" in made.call("status").stderr
    ran = made.call("run", "--master", "local[2]", "--progress-to", odradek)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    yield made


def test_a_run_fills_tables_views_and_the_topic(shop: Shop) -> None:
    assert sorted(row["page"] for row in shop.rows("visits")) == ["/a", "/a", "/b", "/d"]
    assert [(row["page"], row["broken"]) for row in shop.rows("visits_quarantine")] == [("/c", ["readable"])]
    assert sorted(row["page"] for row in shop.rows("quick_visits")) == ["/a", "/d"]
    totals = {row["page"]: (row["visits"], row["seconds"]) for row in shop.rows("pages")}
    assert totals == {"/a": (2, 4005), "/b": (1, 70), "/d": (1, 9)}
    assert sorted(message.key() or b"" for message in read_committed(shop.bootstrap, "visits-long")) == [b"/a", b"/b"]
    assert shop.newest() == {"/a", "/b", "/d"}


def test_the_status_has_rows_lag_and_expectations(shop: Shop) -> None:
    status = shop.status()
    assert (status["state"], status["mode"], status["process"]) == ("finished", "triggered", None)
    visits = next(flow for flow in status["flows"] if flow["flow"] == "visits")
    assert (visits["status"], visits["rows_read"], visits["lag"]) == ("done", len(LINES), 0)
    assert visits["expectations"] == {
        "short": {"action": "count", "rows": 5, "broken": 2},
        "readable": {"action": "quarantine", "rows": 5, "broken": 1},
    }
    written = [json.loads(message.value() or b"") for message in read_committed(shop.bootstrap, "_odradek_pipelines")]
    assert {**written[-1], "process": None} == status, "the topic has the last word"
    text = shop.call("status").stdout
    assert "shop: finished (triggered), began " in text
    assert "EXPECTATION" in text


def test_the_graph_is_a_picture_without_spark(shop: Shop) -> None:
    assert "◀ tell_of_long_visits: streams from visits" in shop.call("graph", "--last").stdout
    shop.call("graph", "--last", "--html", "shop.html")
    page = (shop.folder / "shop.html").read_text()
    assert page.count("<rect ") == 8, "seven nodes and the topic"
    assert "5 rows read" in page


@pytest.mark.slow  # the words are those of test_pipeline_compatibility; a run says them at its start, too
def test_validate_reports_contradictions(shop: Shop) -> None:
    definitions = shop.folder / "transformations/visits.py"
    before = definitions.read_text()
    definitions.write_text(
        before.replace('"subscribe", "visits"', '"subscribe", "others"').replace(" AS INT) AS sec", " AS LONG) AS sec")
    )
    create_topic(shop.bootstrap, "others")
    try:
        refused = shop.call("validate", "--master", "local[2]")
    finally:
        definitions.write_text(before)
    assert refused.returncode == 1, refused.stderr
    assert "does not fit: visits: reads topic others, and its checkpoint topic visits" in refused.stdout
    assert "does not fit: visits: column seconds was int and would be bigint" in refused.stdout
    assert "--full-refresh visits" in refused.stdout
    assert refused.stderr == ""


@pytest.mark.slow  # a Spark of its own, a minute; what a run continues with is that of test_pipeline_compatibility
def test_a_pipeline_continues_from_the_same_files(shop: Shop, tmp_path: Path) -> None:
    """It uses the tables and checkpoints of the run before, and accepts a new column; SIGTERM ends it in a view."""
    definitions = shop.folder / "transformations/pages.sql"
    definitions.write_text(
        definitions.read_text().replace("SELECT page, seconds, at", "SELECT page, seconds, at, 1 AS one")
    )
    hold = tmp_path / "hold"
    (shop.folder / "transformations/slow.py").write_text(SLOW.format(hold=hold))
    arguments = command("run", "--continuous", "--master", "local[2]", "--refresh-views-every", "1")
    with subprocess.Popen(
        arguments, cwd=shop.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(process, lambda: noted(shop) == ("continuous", "running"))
            assert "runs already" in shop.call("run").stderr
            produce_all(shop.bootstrap, "visits", [(None, b"/e 3"), (None, b"/b gone")])
            wait_for(process, lambda: shop.newest() == {"/a", "/d", "/e"})
            wait_for(process, lambda: any(row["page"] == "/e" for row in shop.rows("quick_visits")))
            wait_for(process, lambda: any(row["page"] == "/e" for row in shop.rows("pages")))
            hold.touch()
            produce_all(shop.bootstrap, "visits", [(None, b"/d 1")])
            wait_for(process, hold.with_suffix(".begun").exists)
            # The view may be at work for the records before, while the last one is still to be read.
            wait_for(process, lambda: len(shop.rows("visits")) >= 6)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=500)  # though a view is at work
        finally:
            hold.unlink(missing_ok=True)
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, err
    assert "note: quick_visits: gets the column one int" in err
    assert "shop: stopped (continuous)" in out
    assert [row.get("one") for row in shop.rows("quick_visits") if row["page"] == "/e"] == [1]
    assert len(shop.rows("visits")) == 6, "nothing was read twice"


def has_row(made: Any, page: str) -> bool:
    return any(row["page"] == page for row in made.rows("visits"))


@pytest.mark.slow
def test_a_jvm_that_is_killed_ends_a_continuous_run(java: None, odradek: str, tmp_path: Path) -> None:
    """It ends with one sentence and exit code 1; the next run continues, without lost or repeated rows."""
    made = Shop(odradek, tmp_path, "killed-visits")
    arguments = command("run", "--continuous", "--master", "local[2]")
    for number in range(2):
        with subprocess.Popen(
            arguments, cwd=made.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            page = f"/killed-{number}"
            wait_for(process, lambda: (made.folder / "storage/_odradek/status.json").exists())
            wait_for(process, lambda: noted(made) == ("continuous", "running"))
            produce_all(odradek, "killed-visits", [(None, f"{page} 3".encode())])
            wait_for(process, partial(has_row, made, page))
            os.kill(jvm_of(process.pid), signal.SIGKILL)
            _, err = process.communicate(timeout=500)
        assert process.returncode == 1, err
        assert "Spark's JVM has ended" in err.splitlines()[-1] and "Traceback" not in err
    ran = made.call("run", "--master", "local[2]")
    assert ran.returncode == 0, ran.stderr
    pages = [row["page"] for row in made.rows("visits")]
    assert sorted(pages) == sorted(["/a", "/a", "/b", "/d", "/killed-0", "/killed-1"])


@pytest.mark.slow
def test_a_run_that_was_fenced_ends_with_a_code_of_its_own(java: None, odradek: str, tmp_path: Path) -> None:
    """A restart would fence the driver that took over, whose next start would fence it."""
    made = Shop(odradek, tmp_path, "fenced-visits")
    arguments = command("run", "--continuous", "--master", "local[2]")
    with subprocess.Popen(
        arguments, cwd=made.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(process, lambda: (made.folder / "storage/_odradek/status.json").exists())
        wait_for(process, lambda: noted(made) == ("continuous", "running"))
        produce_all(odradek, "fenced-visits", [(None, b"/b 71")])
        wait_for(process, lambda: len(read_committed(odradek, "fenced-visits-long")) == 3)
        (checkpoint,) = (made.folder / "storage/_checkpoints").glob("**/tell_of_long_visits/**/metadata")
        query = json.loads(checkpoint.read_text())["id"]
        other = Producer({"bootstrap.servers": odradek, "transactional.id": f"odradek-sink.{query}"})
        other.init_transactions(60)
        produce_all(odradek, "fenced-visits", [(None, b"/b 72")])
        _, err = process.communicate(timeout=500)
    assert process.returncode == 6, err
    assert "another run of this query has taken over its sink" in err.splitlines()[-1]
    assert "starts again" not in err
    assert len(read_committed(odradek, "fenced-visits-long")) == 3


@pytest.mark.slow
def test_sparks_own_command_runs_the_files_once(java: None, odradek: str, tmp_path: Path) -> None:
    """A second run fails, as the docs say: its catalog in memory does not have the tables."""
    made = Shop(odradek, tmp_path, "own-visits")
    bin_folder = Path(sys.executable).parent

    def run() -> subprocess.CompletedProcess[str]:
        names = {"PYSPARK_PYTHON": sys.executable, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
        return subprocess.run(
            [bin_folder / "spark-pipelines", "run"],
            cwd=made.folder,
            env=environment() | names,
            capture_output=True,
            text=True,
            timeout=500,
        )

    ran = run()
    assert ran.returncode == 0 and "Run is COMPLETED" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    assert sorted(row["page"] for row in made.rows("visits", "spark-warehouse")) == ["/a", "/a", "/b", "/d"]
    assert [row["page"] for row in made.rows("visits_quarantine", "spark-warehouse")] == ["/c"]
    assert sorted(row["page"] for row in made.rows("quick_visits", "spark-warehouse")) == ["/a", "/d"]
    assert sorted(message.key() or b"" for message in read_committed(odradek, "own-visits-long")) == [b"/a", b"/b"]
    again = run()
    assert again.returncode != 0 and "LOCATION_ALREADY_EXISTS" in again.stdout + again.stderr


def noted(shop: Shop) -> tuple[str, str]:
    """The status of the pipeline from its notes, since each call of the command would start a process."""
    status = json.loads((shop.folder / "storage/_odradek/status.json").read_text())
    return status["mode"], status["state"]


def jvm_of(process_id: int) -> int:
    """The JVM below a process, maybe with its launcher in between."""
    pending = [process_id]
    while pending:
        parent = pending.pop()
        if Path(f"/proc/{parent}/comm").read_text().strip() == "java":
            return parent
        for thread in Path(f"/proc/{parent}/task").iterdir():
            pending += map(int, (thread / "children").read_text().split())
    raise AssertionError(f"process {process_id} has no virtual machine")


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool], seconds: float = 500) -> None:
    deadline = time.monotonic() + seconds
    while True:
        # A view that is made again loses the files of its table under its readers.
        with contextlib.suppress(OSError, pa.ArrowInvalid):
            if condition():
                return
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.3)
