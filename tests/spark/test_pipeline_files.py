"""The files of a pipeline: spec, new project, notes of runs, rules of expectations; errors of one line."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_odradek import expectations
from pyspark_odradek.errors import OptionError
from pyspark_odradek.expectations import expect, rules_of
from pyspark_odradek.pipelines import PipelineError
from pyspark_odradek.pipelines.checkpoints import Checkpoints
from pyspark_odradek.pipelines.graph import Flow, Graph
from pyspark_odradek.pipelines.notes import STATUS, Notes
from pyspark_odradek.pipelines.project import find_spec, init, load
from pyspark_odradek.pipelines.refusals import advised, circle_in, first_line, refused_where

needs_connect = pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs the extra `pipelines`")


def written(folder: Path, text: str) -> Path:
    path = folder / "spark-pipeline.yml"
    path.write_text(text)
    return path


@needs_connect
def test_a_new_project_can_be_loaded(tmp_path: Path) -> None:
    folder = init("shop", tmp_path, bootstrap="broker:9092", topic="my.visits")
    project = load(find_spec(None, folder / "transformations"))
    assert (project.name, project.root) == ("shop", folder / "storage")
    for file in folder.glob("transformations/*.py"):
        compile(file.read_text(), file, "exec")
    with pytest.raises(PipelineError, match="exists; choose another name"):
        init("shop", tmp_path, bootstrap="b:1", topic="t")


@needs_connect
def test_errors_are_json_with_the_option(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "odradek", "pipeline", "status", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    found = json.loads(done.stderr)
    assert found.pop("error").startswith("no spark-pipeline.yml here")
    assert found == {"name": None, "exit_code": 1}


@pytest.mark.parametrize(("name", "topic", "bootstrap"), [("a-b", "t", "b:1"), ("a", "t t", "b:1"), ("a", "t", '"')])
def test_invalid_names_of_projects(tmp_path: Path, name: str, topic: str, bootstrap: str) -> None:
    with pytest.raises(PipelineError, match="is not a "):
        init(name, tmp_path, bootstrap=bootstrap, topic=topic)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "no YAML"),
        ("- a", "this is list"),
        ("name: x", "storage"),
        ("name: 7\nstorage: /s", "name is a text, not 7"),
        ("name: x\nstorage: /s\nlibrary: y", "library"),
        ("name: x\nstorage: s3://bucket/x", "is on s3"),
        ("name: x\nstorage: here", "storage is an absolute path"),
        ("name: x\nstorage: /s\nlibraries: [a]", "libraries are written"),
        ("name: x\nstorage: /s\nlibraries:\n- glob: {include: 'a/**/*.py'}", "glob"),
        ("name: x\nstorage: /s\nconfiguration: {a: 1}", "configuration"),
    ],
)
@needs_connect
def test_an_error_in_a_spec_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said) as error:
        load(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_no_spec_and_two_specs(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="odradek pipeline init NAME"):
        find_spec(None, tmp_path)
    with pytest.raises(PipelineError, match="does not exist"):
        find_spec(str(tmp_path / "nowhere.yml"), tmp_path)
    written(tmp_path, "").with_suffix(".yaml").write_text("")
    with pytest.raises(PipelineError, match="has two specs"):
        find_spec(None, tmp_path)


def test_errors_of_the_command_line_are_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "pipeline", "status"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("odradek pipeline: ")
    assert done.stderr.count("\n") == 1


def test_one_process_locks_a_pipeline(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    assert notes.runner() is None
    with notes.alone():
        assert notes.runner() is not None
        with pytest.raises(PipelineError, match="runs already, as process"), Notes(notes.folder).alone():
            pass
    assert notes.runner() is None


def test_a_status_request_does_not_prevent_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status holds the pipeline's lock for a moment; the last runner is not reported as the present one."""
    monkeypatch.setattr("pyspark_odradek.pipelines.notes.MOMENT_S", 60.0)  # a busy machine's moment
    notes = Notes(tmp_path / "notes")
    with notes.alone():
        lock = notes.folder / "lock"
        assert lock.read_text() == str(os.getpid())
    assert lock.read_text() == ""
    with lock.open() as status:
        fcntl.flock(status, fcntl.LOCK_SH)
        ending = threading.Timer(0.2, fcntl.flock, (status, fcntl.LOCK_UN))
        ending.start()
        with notes.alone():
            ending.join()


def test_damaged_notes_are_an_error_of_one_line(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    assert notes.read(STATUS) is None
    (tmp_path / STATUS).write_text("{")
    with pytest.raises(PipelineError, match="is damaged; remove it"):
        notes.read(STATUS)


def flow(name: str, target: str | None = None) -> Flow:
    return Flow(name, name if target is None else target, (), streaming=True)


def checkpoint(folder: Path, table: str, number: int, *batches: str, done: int | None = None, flow: str = "") -> None:
    """A checkpoint in Spark's form; a batch has the lines of its sources. `done` batches are committed, else all."""
    database, _, name = table.rpartition(".")
    place = folder / "spark_catalog" / (database or "default") / name / (flow or name) / str(number)
    for log in ("offsets", "commits"):
        (place / log).mkdir(parents=True)
    for batch, sources in enumerate(batches):
        (place / "offsets" / str(batch)).write_text("v1\n{}\n" + sources)
        (place / "offsets" / f".{batch}.crc").touch()
        if done is None or batch < done:
            (place / "commits" / str(batch)).write_text("v1\n{}")


def test_flows_count_as_before_only_with_a_checkpoint(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    notes.store_flows(Graph("p", (), tuple(map(flow, ("a", "b", "db.c")))))
    for name in ("a", "db.c"):
        checkpoint(tmp_path, name, 0, "-")
    checkpoint(tmp_path, "b", 0)
    assert set(notes.flows_before(Checkpoints(tmp_path))) == {"a", "db.c"}
    assert json.loads((tmp_path / "notes/flows.json").read_text()).keys() == {"a", "b", "db.c"}
    assert notes.begun(Checkpoints(tmp_path)) == {"a", "db.c"}
    shutil.rmtree(tmp_path / "spark_catalog/default/a")
    assert notes.begun(Checkpoints(tmp_path)) == {"a", "db.c"}, "that there was one is remembered"
    assert set(notes.flows_before(Checkpoints(tmp_path))) == {"db.c"}


def test_a_checkpoint_has_the_offsets_of_its_topics(tmp_path: Path) -> None:
    checkpoint(tmp_path, "db.a", 9, *['{"old": {"0": 1}}'] * 3)
    checkpoint(tmp_path, "db.a", 10, *['{"t": {"0": 1}}'] * 10, '{"t": {"0": 5, "1": 7}}\n-\n{"logOffset": 3}\n')
    checkpoint(tmp_path, "a b", 0)
    there = Checkpoints(tmp_path)
    assert there.offsets(flow("db.a")) == [{"t": {"0": 5, "1": 7}}]
    assert there.offsets(flow("a b")) == there.offsets(flow("nothing")) == []


def test_a_batch_without_a_commit_is_read_again(tmp_path: Path) -> None:
    checkpoint(tmp_path, "a", 0, '{"t": {"0": 1}}', '{"t": {"0": 5}}', done=1)
    checkpoint(tmp_path, "b", 0, '{"t": {"0": 7}}', done=0)
    there = Checkpoints(tmp_path)
    assert there.offsets(flow("a")) == [{"t": {"0": 1}}]
    assert there.offsets(flow("b")) == [{"t": {"0": 7}}], "where it begins is nowhere"


def test_flows_of_one_name_have_checkpoints_of_their_own(tmp_path: Path) -> None:
    for offset, table in enumerate(("x", "one.x", "two.x")):
        checkpoint(tmp_path, table, 0, f'{{"t": {{"0": {offset}}}}}')
    checkpoint(tmp_path, "one.x", 0, '{"t": {"0": 9}}', flow="more")
    there = Checkpoints(tmp_path)
    found = [there.offsets(each) for each in (flow("x"), flow("one.x"), flow("two.x"), flow("one.more", "one.x"))]
    assert found == [[{"t": {"0": offset}}] for offset in (0, 1, 2, 9)]
    assert flow("three.x") not in there


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no rule"),
        ({"count": {"a b": "x"}}, "is not a name"),
        ({"count": {"a": " "}}, "has no condition"),
        ({"count": {"a": "x"}, "drop": {"a": "y"}}, "two expectations are named a"),
    ],
)
def test_invalid_rules(given: dict[str, dict[str, str]], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        rules_of(**given)


def test_a_quarantine_needs_a_rule() -> None:
    with pytest.raises(OptionError, match="no rule for quarantine"):
        expect(count={"a": "x"}, quarantine_table="t")


@needs_connect
def test_a_quarantine_reports_as_a_group_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream reads the same topics: two streams in one group would reset each other's offsets."""
    from pyspark import pipelines

    class Reader:
        def __init__(self) -> None:
            self.given: dict[str, str] = {}

        def option(self, key: str, value: str) -> Reader:
            self.given[key] = value
            return self

        def options(self, **given: str) -> Reader:
            self.given |= given
            return self

    flows: list[Callable[[], Any]] = []
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: SimpleNamespace(readStream=Reader()))
    monkeypatch.setattr(pipelines, "create_streaming_table", lambda *_, **__: None)
    monkeypatch.setattr(pipelines, "append_flow", lambda **_: flows.append)
    for name in ("accepted", "refused"):
        monkeypatch.setattr(expectations, name, lambda rows, *_: rows)

    def visits() -> Reader:
        return Reader().option("groupId", "shop").options(GROUPID="shop", subscribe="shop")

    query = expect(quarantine={"a": "x"})(visits)
    (quarantined,) = flows
    own = {"groupId": "shop", "GROUPID": "shop", "subscribe": "shop"}
    for _ in range(2):
        assert query().given == own
        assert quarantined().given == own | {"groupId": "shop_quarantine", "GROUPID": "shop_quarantine"}


@pytest.mark.parametrize(
    ("reported", "line"),
    [
        ("[A_CLASS] It is\nso. SQLSTATE: 42\n\tat org.apache", "[A_CLASS] It is so."),
        (
            "[STREAM_FAILED] Query x: Traceback (most recent call last):\n  File y\n"
            "pyspark_odradek.errors.ClusterError: topic a does not exist\n SQLSTATE: 38000",
            "topic a does not exist",
        ),
        (
            "(org.apache.spark.sql.x.A$BException) org.apache.spark.sql.AnalysisException: [INVALID] `a b` is no name",
            "[INVALID] `a b` is no name",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 3] terminated with exception: [USER_RAISED_EXCEPTION] no\n"
            " SQLSTATE: P0001",
            "no",
        ),
        ("T: Traceback (most recent call last):\n  File y\nbuiltins.ValueError: no\n\tat z", "ValueError: no"),
        (
            "[NOT_FOUND] No table b. Search path: [`a`]. To tolerate the error on drop use DROP",
            "[NOT_FOUND] No table b.",
        ),
        (
            "Unsupported destination spark_catalog.default.out in flow: spark_catalog.default.f at transformDownNodes",
            "f: flows into out, which is not a table of the pipeline: declare it with create_streaming_table "
            "(a sink with create_sink, and its flows in Python)",
        ),
    ],
)
def test_a_message_of_spark_becomes_a_line(reported: str, line: str) -> None:
    assert first_line(reported) == line


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("visits: Python worker failed to connect back.", "run it again when less else runs there"),
        ("visits: Job aborted: java.lang.OutOfMemoryError: Java heap space", "spark.driver.memory"),
        ("visits: Python worker exited unexpectedly (crashed): java.io.EOFException", "--master 'local[2]'"),
        ("visits: /lake/x: No space left on device", "make room there"),
        ("visits: topic a does not exist. Create it", ""),
    ],
)
def test_errors_of_spark_get_advice(reason: str, advice: str) -> None:
    said = advised(reason)
    assert said.startswith(reason.rstrip(".")) and advice in said
    assert (said == reason) is not bool(advice)
    assert advised(said) == said, "once"


@needs_connect
def test_output_of_a_definition_file_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyspark.pipelines.logging_utils import log_with_curr_timestamp

    (tmp_path / "p.py").write_text("print('seen', 1)\nprint('2026-01-01 00:00:00: mine')")
    with refused_where(tmp_path):
        log_with_curr_timestamp(f"Importing {tmp_path}...")
        runpy.run_path(str(tmp_path / "p.py"))
    assert capsys.readouterr() == ("", "seen 1\n2026-01-01 00:00:00: mine\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nraise ValueError('no\\nmore')", "p.py:2: ValueError: no more"),
        ("def a(:", "p.py:1: invalid syntax"),
        ("import sys\nsys.exit(3)", "p.py:2: ends Python with exit(3): a definition file only declares"),
        ("(lambda: None)()._plan", "p.py:1: the query function returns NoneType, and not a DataFrame"),
        (
            "from pyspark_odradek.expectations import expect\nexpect(drop={'a': 'true'})(None)",
            "p.py:2: @expect stands above Spark's decorator and would have no effect; put it below",
        ),
    ],
)
def test_an_error_in_a_definition_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.py").write_text(text)
    with pytest.raises(PipelineError) as refusal, refused_where(tmp_path):
        runpy.run_path(str(tmp_path / "p.py"))
    assert str(refusal.value) == said


def test_wrong_sql_is_reported_with_its_file_and_line(tmp_path: Path) -> None:
    """Spark's client calls `register_sql` for each file, and its error names the line."""
    from pyspark.errors import PySparkException

    def register_sql(text: str, file_path: Path) -> None:
        raise PySparkException(f"[PARSE] Syntax error at 'SELEC'. SQLSTATE: 42601 (line 5, pos 0)\n== SQL ==\n{text}")

    said = r"^sub/a.sql:5: \[PARSE\] Syntax error at 'SELEC'.$"
    with pytest.raises(PipelineError, match=said), refused_where(tmp_path):
        register_sql("SELEC 1", Path("sub/a.sql"))


def test_a_cycle_is_named_and_a_chain_is_none() -> None:
    assert circle_in({"c": ["a"], "a": ["x", "b"], "b": ["a"]}) == ["a", "b"]
    assert circle_in({"a": ["a"]}) == ["a"]
    assert circle_in({"a": ["b"], "b": ["outside"]}) == []
