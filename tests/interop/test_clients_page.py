"""docs/clients.md: the programs of Java, Go and Node run as they are written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.packages import MissingError, cache_folder, require_command, run_step
from tests.interop.test_other_languages import HERE, install_node_program, run_program
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka, run_tool
from tests.support.nodes.node import Node
from tests.support.snippets import HELLO, snippets

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.java
def test_java(broker: Node | ApacheKafka, tmp_path: Path) -> None:
    require_kafka()
    (program,) = snippets("clients.md", "java", broker.bootstrap)
    source = tmp_path / "Hello.java"
    source.write_text(program)
    assert sorted(line for line in run_tool(str(source)).stdout.splitlines() if line.startswith("hello")) == HELLO


@pytest.mark.slow
def test_go(broker: Node | ApacheKafka) -> None:
    (program,) = snippets("clients.md", "go", broker.bootstrap)
    try:
        go = require_command("go")
        with cache_folder("interop-go-page") as folder:
            for name in ("go.mod", "go.sum"):
                shutil.copy(HERE / "go" / name, folder / name)
            (folder / "main.go").write_text(program)
            run_step([go, "build", "-mod=mod", "-o", "hello", "."], folder, folder / "built.txt", "go build")
    except MissingError as error:
        pytest.skip(f"no franz-go: {error}")
    assert sorted(run_program([str(folder / "hello")]).splitlines()) == HELLO


@pytest.mark.slow
def test_node(broker: Node | ApacheKafka) -> None:
    (program,) = snippets("clients.md", "js", broker.bootstrap)
    try:
        folder = install_node_program()
    except MissingError as error:
        pytest.skip(f"no kafkajs: {error}")
    (folder / "hello.js").write_text(program)
    printed = run_program(["node", str(folder / "hello.js")], KAFKAJS_NO_PARTITIONER_WARNING="1")
    assert sorted(printed.splitlines()) == HELLO
