"""Reads the checkpoints of a pipeline's flows: which flows have one, and the offsets that they have reached.

Spark puts them in `<storage>/_checkpoints/<each part of the target's full name>/<flow>/<number>`, and makes a new
number at a full refresh. Only local files are read, without Spark.
"""

from __future__ import annotations

import json
from pathlib import Path

from pyspark_odradek.client.offsets import SourceOffset
from pyspark_odradek.pipelines.graph import Flow
from pyspark_odradek.pipelines.refusals import short
from pyspark_odradek.progress import positions_of

_HEAD_LINES = 2  # the version, and the batch's metadata; then a line for each source


class Checkpoints:
    """The checkpoints below a folder, by target and by the last part of the flow's name."""

    def __init__(self, folder: Path) -> None:
        self._flows: dict[tuple[str, str], Path] = {}
        for offsets in folder.glob("**/offsets"):
            path = offsets.parent.parent
            *target, name = path.relative_to(folder).parts
            self._flows[short(".".join(target)), name] = path

    def __contains__(self, flow: Flow) -> bool:
        """Whether a batch of this flow has begun."""
        return any(self._offsets(number) for number in self._numbers(flow))

    def offsets(self, flow: Flow) -> list[SourceOffset]:
        """The next offsets of each source of topics; empty without a batch.

        They are the end of the newest batch. If Spark has not recorded its commit, the batch runs again, and they are
        the end of the batch before; a first batch without a commit has only its planned end.
        """
        checkpoint = next(iter(self._numbers(flow)), None)
        offsets = self._offsets(checkpoint)
        if checkpoint is None or not offsets:
            return []
        if len(offsets) > 1 and not (checkpoint / "commits" / offsets[-1].name).exists():
            offsets.pop()
        lines = offsets[-1].read_text(encoding="utf-8").splitlines()[_HEAD_LINES:]
        return [json.loads(line) for line in lines if positions_of(line) is not None]

    def _numbers(self, flow: Flow) -> list[Path]:
        """The folders of the flow's checkpoints, the newest first."""
        folder = self._flows.get((flow.target, flow.name.rsplit(".", 1)[-1]))
        found = [path for path in folder.iterdir() if path.name.isdigit()] if folder is not None else []
        return sorted(found, key=lambda path: -int(path.name))

    @staticmethod
    def _offsets(checkpoint: Path | None) -> list[Path]:
        files = checkpoint.glob("offsets/*") if checkpoint is not None else []
        return sorted((path for path in files if path.name.isdigit()), key=lambda path: int(path.name))
