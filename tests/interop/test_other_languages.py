"""Clients of other languages, each a small program of ours: Java's own, franz-go and kafkajs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop import known_failures
from tests.interop.packages import MissingError, cache_folder, require_command, run_step
from tests.support.clients.confluent import create_topic
from tests.support.nodes.apache_kafka import ApacheKafka, require_kafka, run_tool
from tests.support.nodes.node import Node

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
FRANZ_GO = "franz-go"
# Tests and subtests; fewer would mean that they were not built.
FRANZ_GO_COUNT = 30


def run_program(command: list[str], **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.java
def test_java_client(broker: Node | ApacheKafka) -> None:
    require_kafka()
    done = run_tool(str(HERE / "java" / "RoundTrip.java"), [broker.bootstrap, "java-round-trip"])
    assert done.stdout.split()[-2:] == ["ok", "2500"]


@pytest.mark.slow
def test_franz_go(broker: Node | ApacheKafka) -> None:
    try:
        program = build_go_program()
    except MissingError as error:
        pytest.skip(f"no franz-go: {error}")
    create_topic(broker.bootstrap, "franz-go", 3)
    assert run_program([str(program), broker.bootstrap, "franz-go"]).split() == ["ok", "1000"]


@pytest.mark.slow
def test_franz_go_own_tests(broker: Node | ApacheKafka, tmp_path: Path) -> None:
    """The tests of the client package: producing, direct consumption, and groups of every kind that copy records."""
    try:
        folder = franz_go_sources()
    except MissingError as error:
        pytest.skip(f"no franz-go: {error}")
    unwanted = "|".join(known_failures.not_run(FRANZ_GO)) or "^$"
    outcomes = run_go_tests(folder / "pkg" / "kgo", broker.bootstrap, unwanted, tmp_path / "output.txt")
    assert len(outcomes) >= FRANZ_GO_COUNT, f"only {len(outcomes)} tests ran"
    failed = [name for name, outcome in outcomes.items() if outcome == "fail"]
    assert not failed, f"{failed}:\n{(tmp_path / 'output.txt').read_text()[-3000:]}"


@pytest.mark.slow
def test_kafkajs(broker: Node | ApacheKafka) -> None:
    try:
        folder = install_node_program()
    except MissingError as error:
        pytest.skip(f"no kafkajs: {error}")
    printed = run_program(
        ["node", str(folder / "smoke.js"), broker.bootstrap, "kafkajs"], KAFKAJS_NO_PARTITIONER_WARNING="1"
    )
    assert printed.split() == ["ok", "400"]


def build_go_program(package: str = ".") -> Path:
    """The built Go program of a folder; raises MissingError where there is no Go, or no way to fetch franz-go."""
    go = require_command("go")
    with cache_folder("interop-go") as folder:
        shutil.copytree(HERE / "go", folder, dirs_exist_ok=True)
        program = folder / "built" / (package if package != "." else "smoke")
        run_step(
            [go, "build", "-mod=mod", "-o", str(program), f"./{package}"], folder, folder / "built.txt", "go build"
        )
        return program


def franz_go_sources() -> Path:
    """The folder of the Go module to which our program is pinned; raises MissingError."""
    go = require_command("go")
    build_go_program()
    with cache_folder("interop-go") as folder:
        command = [go, "list", "-mod=mod", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0 or not done.stdout.strip():
        raise MissingError(f"go list failed: {done.stderr[-300:]}")
    return Path(done.stdout.strip())


def run_go_tests(folder: Path, bootstrap: str, unwanted: str, output: Path) -> dict[str, str]:
    """Test or subtest → "pass", "fail" or "skip"."""
    environment = {**os.environ, "KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"}
    command = ["go", "test", "-mod=mod", "-count=1", "-json", "-timeout=500s", f"-skip={unwanted}", "."]
    with output.open("wb") as out:
        subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, timeout=560)
    lines = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    ends = [line for line in lines if line["Action"] in ("pass", "fail", "skip") and "Test" in line]
    return {line["Test"]: line["Action"] for line in ends}


def install_node_program() -> Path:
    """The folder with the Node program and its dependency; raises MissingError without npm or a way to fetch."""
    npm = require_command("npm")
    require_command("node")
    with cache_folder("interop-node") as folder:
        for source in (HERE / "node").iterdir():
            shutil.copy(source, folder / source.name)
        if not (folder / "node_modules" / "kafkajs").exists():
            run_step([npm, "install", "--silent", "--no-package-lock"], folder, folder / "built.txt", "npm install")
        return folder
