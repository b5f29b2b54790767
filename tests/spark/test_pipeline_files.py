"""A pipeline's files: spec, new project, notes of runs, rules of expectations; one line for what is wrong."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_odradek.errors import OptionError
from pyspark_odradek.expectations import expect, rules_of
from pyspark_odradek.pipelines import PipelineError
from pyspark_odradek.pipelines.engine import first_line
from pyspark_odradek.pipelines.graph import Flow, Graph
from pyspark_odradek.pipelines.notes import STATUS, Notes
from pyspark_odradek.pipelines.project import find_spec, init, load

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


@pytest.mark.parametrize(("name", "topic", "bootstrap"), [("a-b", "t", "b:1"), ("a", "t t", "b:1"), ("a", "t", '"')])
def test_names_that_are_none(tmp_path: Path, name: str, topic: str, bootstrap: str) -> None:
    with pytest.raises(PipelineError, match="is no "):
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
def test_a_wrong_spec_is_one_line(tmp_path: Path, text: str, said: str) -> None:
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


def test_the_command_line_says_one_line(tmp_path: Path) -> None:
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


def test_one_process_holds_a_pipeline(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    assert notes.runner() is None
    with notes.alone():
        assert notes.runner() is not None
        with pytest.raises(PipelineError, match="runs already, as process"), Notes(notes.folder).alone():
            pass
    assert notes.runner() is None


def test_damaged_notes_are_one_line(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    assert notes.read(STATUS) is None
    (tmp_path / STATUS).write_text("{")
    with pytest.raises(PipelineError, match="is damaged; remove it"):
        notes.read(STATUS)


def test_flows_count_as_before_only_with_a_checkpoint(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    flows = tuple(Flow(name, name, (), streaming=True) for name in ("a", "b", "db.c"))
    notes.keep_flows(Graph("p", (), flows))
    for name in ("a/a", "db/c/c"):
        (tmp_path / "_checkpoints/spark_catalog" / name / "0/offsets").mkdir(parents=True)
        (tmp_path / "_checkpoints/spark_catalog" / name / "0/offsets/0").touch()
    assert set(notes.flows_before(tmp_path / "_checkpoints")) == {"a", "db.c"}
    assert json.loads((tmp_path / "notes/flows.json").read_text()).keys() == {"a", "b", "db.c"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no rule"),
        ({"count": {"a b": "x"}}, "is no name"),
        ({"count": {"a": " "}}, "has no condition"),
        ({"count": {"a": "x"}, "drop": {"a": "y"}}, "two expectations are named a"),
    ],
)
def test_rules_that_are_none(given: dict[str, dict[str, str]], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        rules_of(**given)


def test_a_quarantine_needs_a_rule() -> None:
    with pytest.raises(OptionError, match="no rule for quarantine"):
        expect(count={"a": "x"}, quarantine_table="t")


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("[A_CLASS] It is\nso. SQLSTATE: 42\n\tat org.apache", "[A_CLASS] It is so."),
        (
            "[STREAM_FAILED] Query x: Traceback (most recent call last):\n  File y\n"
            "pyspark_odradek.errors.ClusterError: topic a does not exist\n SQLSTATE: 38000",
            "topic a does not exist",
        ),
        ("T: Traceback (most recent call last):\n  File y\nbuiltins.ValueError: no\n\tat z", "ValueError: no"),
    ],
)
def test_what_spark_says_becomes_a_line(told: str, line: str) -> None:
    assert first_line(told) == line
