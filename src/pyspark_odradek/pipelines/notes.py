"""The state of runs for the next run and for `status`, in `<storage>/_odradek`: JSON files that are replaced whole."""

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
        """The content of a file; None if it does not exist. Raises PipelineError for a damaged one."""
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
        """Lock the pipeline while it runs. Raises PipelineError if another process runs it."""
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
        """The id of the process that runs the pipeline; None if there is none."""
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
        """The graph that the last command with Spark has stored; None if there is none."""
        content = self.read(GRAPH)
        return None if content is None else from_json(content)

    def flows_before(self, checkpoints: Checkpoints) -> dict[str, Flow]:
        """The streaming flows of the last run that have a checkpoint, by name."""
        content: Mapping[str, Any] = self.read(FLOWS) or {}
        flows = from_json({"name": "", "nodes": [], "flows": list(content.values())}).flows
        return {flow.name: flow for flow in flows if flow in checkpoints}

    def begun(self, checkpoints: Checkpoints) -> set[str]:
        """The flows that have, or have had, a checkpoint; stores those that have one now."""
        known = {*(self.read(BEGUN) or ())}
        there = {*self.flows_before(checkpoints)}
        if there - known:
            self.write(BEGUN, sorted(known | there))
        return known | there

    def store_flows(self, graph: Graph) -> None:
        """Store the streaming flows of this run; the entries of flows that are no longer defined stay."""
        content = self.read(FLOWS) or {}
        content |= {flow["name"]: flow for flow in graph.as_json()["flows"] if flow["streaming"]}
        self.write(FLOWS, content)


def _locked(file: TextIO) -> bool:
    """Lock a file; returns whether it is locked. Retries, since `runner` of another process holds the lock briefly."""
    deadline = time.monotonic() + MOMENT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.02)
