"""deploy/container: its lines, run as another user on mounts that are read-only, as an engine runs them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.nodes.container import ROOT, Containerfile, Namespace, why_not
from tests.support.waiting import PATIENCE_S, eventually

WHY_NOT = why_not()
needs_namespaces = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it works")
PIP_OF_THIS_MACHINE = ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "HTTPS_PROXY", "HTTP_PROXY")


def serve(container: Containerfile, space: Namespace, venv: Path | None) -> None:
    """Start the container's command, write and read, look at its health, and stop it as an engine does."""
    environment = container.environment
    command = space.command(container.command, environment, venv=venv)
    output = space.folder / "output.log"
    with output.open("wb") as log:
        node = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:

        def healthy() -> bool:
            assert node.poll() is None, output.read_text()
            return space.enter(node.pid, container.health_check, environment).returncode == 0

        eventually(healthy, output.read_text)

        def cluster_answers() -> bool:
            assert node.poll() is None, output.read_text()
            made = space.enter(node.pid, ["odradek", "topics", "create", "orders", "--if-not-exists"], environment)
            return made.returncode == 0

        eventually(cluster_answers, output.read_text)
        listed = space.enter(node.pid, ["odradek", "topics", "list"], environment)
        assert "orders" in listed.stdout, listed.stderr
        refused = space.enter(node.pid, ["touch", "/opt/odradek/x", "/var/lib/x", "/x"], environment)
        assert len(re.findall("Read-only file system|Permission denied", refused.stderr)) == 3, refused.stderr
        assert {path.stat().st_uid for path in (space.folder / "lib" / "odradek").rglob("*")} == {container.user}
        node.terminate()
        assert node.wait(PATIENCE_S) == 0, output.read_text()
    finally:
        node.kill()
        node.wait()


def test_the_image_is_small_and_of_a_number_of_its_own() -> None:
    container = Containerfile()
    assert len(container.stages) == 2
    assert container.user > 1000
    assert not [each for each in container.stages[-1] if each.cmd.upper() in {"RUN", "ADD"}]
    # .containerignore lets through exactly the paths that the file copies.
    sent = (ROOT / ".containerignore").read_text().splitlines()
    copied = [path for each in container.stages[0] if each.cmd.upper() == "COPY" for path in each.value[:-1]]
    assert copied
    assert {f"!{path}" for path in copied} == {line for line in sent if line.startswith("!")}


def test_the_locked_packages_are_those_of_the_tests() -> None:
    pinned = {
        name: set(re.findall(r"^([a-z0-9.-]+==[^ ]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))
        for name in ("runtime.txt", "dev.txt")
    }
    assert pinned["runtime.txt"]
    assert pinned["runtime.txt"] <= pinned["dev.txt"]


@needs_namespaces
def test_the_container_runs_where_nothing_else_is_writable(tmp_path: Path) -> None:
    container = Containerfile()
    space = Namespace(tmp_path, container.user)
    venv = Path(sys.prefix)
    look = space.command(["python", "-c", "import odradek"], container.environment, venv=venv)
    looked = subprocess.run(look, capture_output=True, text=True, timeout=PATIENCE_S)
    if looked.returncode != 0 and "Permission denied" in looked.stderr:
        pytest.skip(f"another user cannot read {venv}")
    assert looked.returncode == 0, looked.stderr
    serve(container, space, venv)


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_namespaces
def test_the_image_is_built_and_runs(tmp_path: Path) -> None:
    """Another user runs each COPY and RUN of the first stage, from a project that it cannot write to."""
    container = Containerfile()
    space = Namespace(tmp_path, container.user)
    folder = "/opt"
    lines = ["set -e"]
    for command in container.stages[0]:
        match command.cmd.upper():
            case "WORKDIR":
                (folder,) = command.value
                lines += [f"mkdir -p {folder}", f"cd {folder}"]
            case "COPY":
                *sources, target = command.value
                lines += [f"mkdir -p {target}" if len(sources) > 1 or target.endswith("/") else ":"]
                lines += [f"cp -r {shlex.quote(str(ROOT / source))} {target}" for source in sources]
            case "RUN":
                (line,) = command.value
                lines.append(line)
            case other:
                raise AssertionError(other)
    base = Path(sys.base_prefix) / "bin"
    environment = {"PATH": f"{base}:/usr/local/bin:/usr/bin:/bin", "HOME": "/opt", "TMPDIR": "/opt"}
    look = space.command(["python3", "-m", "pip", "--version"], environment)
    if subprocess.run(look, capture_output=True, timeout=PATIENCE_S).returncode != 0:
        pytest.skip(f"another user has no pip in {base}")
    look = space.command(["test", "-r", str(ROOT / "pyproject.toml")], environment)
    if subprocess.run(look, capture_output=True, timeout=PATIENCE_S).returncode != 0:
        pytest.skip(f"another user cannot read {ROOT}")
    environment |= {name: os.environ[name] for name in PIP_OF_THIS_MACHINE if name in os.environ}
    build = space.command(["sh", "-c", "\n".join(lines)], environment, writable="/opt")
    network = [word for word in build if word != "--net"]
    done = subprocess.run(network, capture_output=True, text=True, timeout=600)
    if "No matching distribution" in done.stderr and "from versions: none" in done.stderr:
        pytest.skip("pip reaches no index here")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not (tmp_path / "opt" / "odradek" / "bin" / "pip").exists()
    serve(container, space, None)
