"""The format with a driver that dies in a planned step of its commit, and tasks that are killed, fail or are slow."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.types import StructType

from pyspark_odradek.data_source import OdradekDataSource
from pyspark_odradek.writers import stream_writer

# The longest time until a second attempt has begun and staged its rows.
LONGEST_S = 120.0


class DyingSource(OdradekDataSource):
    """Follows the plan in the file of the option `plan`, one line a death: `<before|after> <step> [process group]`.

    `hold <step>` lets the driver wait in the step: it makes a file `held` beside the plan and goes on when there is a
    file `go`. The option `trouble` is what `Troubled` takes, in JSON.
    """

    @classmethod
    def name(cls) -> str:
        return "odradek_dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        options = {name.lower(): value for name, value in self.options.items()}
        plan = Path(options.pop("plan"))
        trouble = options.pop("trouble", "")
        writer: Any = stream_writer(options, schema, overwrite)
        if trouble:
            writer.write = Troubled(writer.write, options.get("sink", "topic"), **json.loads(trouble))
        if "transaction" not in dir(writer):
            return dying(writer, plan)
        make, abort = writer.transaction, writer.abort

        def abort_as_it_is(*of: Any) -> None:
            """It follows a commit that failed, and has a look at the marker, too."""
            writer.transaction = make
            abort(*of)

        writer.transaction = lambda *of: dying(make(*of), plan)
        writer.abort = abort_as_it_is
        return writer


def dying(commit: Any, plan: Path) -> Any:
    """A commit that follows the first line of the plan, which is struck out by it."""
    lines = plan.read_text().splitlines()
    if not lines:
        return commit
    when, step, *group = lines[0].split()
    planned = getattr(commit, step)

    def dies(*args: Any, **named: Any) -> Any:
        if when == "after":
            planned(*args, **named)
        plan.write_text("\n".join(lines[1:]))
        if group:
            os.killpg(int(group[0]), signal.SIGKILL)  # the driver and its JVM; Spark gives its workers another group
        os.kill(os.getpid(), signal.SIGKILL)

    def waits(*args: Any, **named: Any) -> Any:
        (plan.parent / "held").touch()
        while not (plan.parent / "go").exists():
            time.sleep(0.1)
        return planned(*args, **named)

    setattr(commit, step, waits if when == "hold" else dies)
    return commit


class Troubled:
    """Run a sink's tasks, with trouble in the midst of it or at its end, when a task has staged all of its rows.

    Args:
        write: of the sink.
        sink: its name.
        folder: where each task that has staged its rows adds a line to the file `attempts`.
        kill_at: the number of a row: whose task has staged it kills its executor, once.
        kill_after: the same, when the task has staged all.
        fail: the first attempt of each first task fails.
        slow: it ends five seconds after its second attempt has staged the rows.
    """

    def __init__(
        self, write: Any, sink: str, *, folder: str, kill_at: int | None, kill_after: int | None, fail: bool, slow: bool
    ) -> None:
        self.write = write
        self.sink = sink
        self.folder = Path(folder)
        self.kill_at = kill_at
        self.kill_after = kill_after
        self.fail = fail
        self.slow = slow

    def __call__(self, iterator: Iterator[Any]) -> Any:
        seen: set[int] = set()
        staged = self.write(self._watched(iterator, seen))
        if not seen:
            return staged
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        task, attempt = context.partitionId(), context.attemptNumber()
        with (self.folder / "attempts").open("a") as notes:
            notes.write(f"{self.sink} {batch_id} {task} {attempt}\n")
        if self.kill_after in seen:
            self._kill_executor("after")
        if task == 0 and attempt == 0 and self.fail:
            raise RuntimeError("a failure that was planned")
        if task == 0 and attempt == 0 and self.slow:
            self._wait_for(f"{self.sink} {batch_id} {task} 1")
            time.sleep(5)
        return staged

    def _wait_for(self, attempt: str) -> None:
        """Wait for the line of an attempt: on a busy machine Spark begins it late."""
        ends_s = time.monotonic() + LONGEST_S
        while attempt not in (self.folder / "attempts").read_text().splitlines() and time.monotonic() < ends_s:
            time.sleep(0.5)

    def _watched(self, iterator: Iterator[Any], seen: set[int]) -> Iterator[Any]:
        for batch in iterator:
            column = "id" if "id" in batch.schema.names else "value"
            numbers = {int(value) for value in batch.column(column).to_pylist()}
            seen |= numbers
            yield batch
            if self.kill_at in numbers:
                self._kill_executor("at")  # the sink has taken these rows, since it asks for more

    def _kill_executor(self, when: str) -> None:
        """Kill -9 of the JVM that this process works for, where that was not done yet."""
        flag = self.folder / f"killed-{self.sink}-{when}"
        if flag.exists():
            return
        flag.touch()
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
        time.sleep(60)
