"""The format with a driver that dies in a planned step of its commit, for tests of what is left then."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from pyspark_odradek.sink import stream_writer
from pyspark_odradek.source import OdradekDataSource


class DyingSource(OdradekDataSource):
    """Follows the plan in the file of the option `plan`, one line a death: `<before|after> <step> [process group]`."""

    @classmethod
    def name(cls) -> str:
        return "odradek_dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        options = {name.lower(): value for name, value in self.options.items()}
        plan = Path(options.pop("plan"))
        writer: Any = stream_writer(options, schema, overwrite)
        if "transaction" not in dir(writer):
            return dying(writer, plan)
        make = writer.transaction
        writer.transaction = lambda *of: dying(make(*of), plan)
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

    setattr(commit, step, dies)
    return commit
