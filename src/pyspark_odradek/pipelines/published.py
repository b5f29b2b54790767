"""The status of a run in a topic as well (`--progress-to`), for those who have no access to its folder.

A thread of its own writes the last status every few seconds, and at the end. That the cluster does not take it is said
once, and never ends the run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

from odradek.admin.connecting import make_cluster
from odradek.client.cluster import Cluster
from odradek.client.pipeline_progress import TOPIC, write_progress
from odradek.common.errors import ConfigError, OdradekError
from pyspark_odradek.pipelines import PipelineError

EVERY_S = 5.0
TIMEOUT_MS = 5_000
# The end of a run does not wait longer for a cluster.
CLOSES_WITHIN_S = 5.0


class Published:
    """Writes what `put` brings. Use it as a context manager."""

    def __init__(
        self, bootstrap: str, properties: Mapping[str, str], say: Callable[[str], None], every_s: float = EVERY_S
    ) -> None:
        """Raises PipelineError for an address or properties that cannot be."""
        try:
            self._cluster = make_cluster(bootstrap, properties, client_id="odradek-pipeline", timeout_ms=TIMEOUT_MS)
        except ConfigError as error:
            raise PipelineError(f"--progress-to {bootstrap}: {error}") from None
        self._say = say
        self._every_s = every_s
        self._last: Mapping[str, Any] | None = None
        self._failed = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-progress", daemon=True)

    def __enter__(self) -> Published:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(CLOSES_WITHIN_S)

    def put(self, status: Mapping[str, Any]) -> None:
        """The status now; of those between two writes the last is written."""
        self._last = status

    def _run(self) -> None:
        asyncio.run(self._write_again_and_again())

    async def _write_again_and_again(self) -> None:
        async with self._cluster as cluster:
            written: Mapping[str, Any] | None = None
            while True:
                is_end = await asyncio.to_thread(self._ending.wait, self._every_s)
                if self._last is not None and self._last is not written:
                    written = self._last
                    await self._write(cluster, written)
                if is_end:
                    return

    async def _write(self, cluster: Cluster, status: Mapping[str, Any]) -> None:
        try:
            await write_progress(cluster, status)
            self._failed = False
        except (OdradekError, OSError) as error:
            if not self._failed:
                self._failed = True
                self._say(f"progress is not written to {TOPIC}: {error}")
