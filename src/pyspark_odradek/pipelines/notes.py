"""What runs leave for the next one and for `status`, in `<storage>/_odradek`: small JSON files, each replaced whole."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from pyspark_odradek.pipelines import PipelineError
from pyspark_odradek.pipelines.checkpoints import Checkpoints
from pyspark_odradek.pipelines.graph import Flow, Graph, from_json

GRAPH, FLOWS, BEGUN, TABLES, STATUS = "graph.json", "flows.json", "begun.json", "tables.json", "status.json"
MOMENT_S = 1.0


class Notes:
    """The folder of one pipeline's notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> Any:
        """The content of a file, or None where it is not there. Raises PipelineError for a damaged one."""
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise PipelineError(f"{path} is damaged; remove it, and the next run writes it again") from None

    def write(self, name: str, content: Any) -> None:
        """Replace a file: a reader finds the old or the new one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        fresh = path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the pipeline while it runs. Raises PipelineError where another process does."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+", encoding="utf-8") as file:
            if not _locked(file):
                file.seek(0)
                raise PipelineError(f"the pipeline runs already, as process {file.read().strip()}")
            try:
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
                yield
            finally:
                file.truncate(0)

    def runner(self) -> int | None:
        """The process that runs the pipeline, or None."""
        path = self.folder / "lock"
        if not path.exists():
            return None
        with path.open("r", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0)
        return None

    def graph(self) -> Graph | None:
        """The graph as the last command that asked Spark for it has left it."""
        content = self.read(GRAPH)
        return None if content is None else from_json(content)

    def flows_before(self, checkpoints: Checkpoints) -> dict[str, Flow]:
        """Streaming flows as they were when they last ran, of those that have a checkpoint."""
        content: Mapping[str, Any] = self.read(FLOWS) or {}
        flows = from_json({"name": "", "nodes": [], "flows": list(content.values())}).flows
        return {flow.name: flow for flow in flows if flow in checkpoints}

    def begun(self, checkpoints: Checkpoints) -> set[str]:
        """Flows of earlier runs that have, or have had, a checkpoint; those that have one are remembered."""
        known = {*(self.read(BEGUN) or ())}
        there = {*self.flows_before(checkpoints)}
        if there - known:
            self.write(BEGUN, sorted(known | there))
        return known | there

    def keep_flows(self, graph: Graph) -> None:
        """Remember how the streaming flows are that run now; what is gone from the files keeps its note."""
        content = self.read(FLOWS) or {}
        content |= {flow["name"]: flow for flow in graph.as_json()["flows"] if flow["streaming"]}
        self.write(FLOWS, content)


def _locked(file: TextIO) -> bool:
    """Take a file's lock; `runner` of another process may hold it for a moment, without running the pipeline."""
    deadline = time.monotonic() + MOMENT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.02)
