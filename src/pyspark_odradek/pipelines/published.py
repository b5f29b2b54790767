"""The status of a run in a topic as well (`--progress-to`), for those who have no access to its folder.

A thread of its own writes the last status every few seconds, and at the end. That the cluster does not take it is said
once, and never ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from odradek.admin.connecting import make_cluster
from odradek.client.cluster import Cluster
from odradek.client.pipeline_progress import TOPIC, write_progress
from odradek.common.errors import ApiError, ConfigError, OdradekError
from pyspark_odradek.pipelines import PipelineError

EVERY_S = 5.0
TIMEOUT_MS = 5_000
# The end of a run does not wait longer for a cluster, which it tries again meanwhile.
CLOSES_WITHIN_S = 5.0
TRIES_AGAIN_S = 0.5


class Published:
    """Writes what `put` brings. Use it as a context manager."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        say: Callable[[str], None],
        every_s: float = EVERY_S,
        closes_within_s: float = CLOSES_WITHIN_S,
    ) -> None:
        """Raises PipelineError for an address or properties that cannot be."""
        try:
            self._cluster = make_cluster(bootstrap, properties, client_id="odradek-pipeline", timeout_ms=TIMEOUT_MS)
        except ConfigError as error:
            raise PipelineError(f"--progress-to {bootstrap}: {error}") from None
        self._say = say
        self._every_s = every_s
        self._closes_within_s = closes_within_s
        self._last: Mapping[str, Any] | None = None
        self._failed = False
        self._may_succeed = True
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-progress", daemon=True)

    def __enter__(self) -> Published:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(self._closes_within_s)

    def put(self, status: Mapping[str, Any]) -> None:
        """The status now; of those between two writes the last is written."""
        self._last = status

    def _run(self) -> None:
        with contextlib.suppress(TimeoutError):  # of the end: the status before stays there
            asyncio.run(self._write_again_and_again())

    async def _write_again_and_again(self) -> None:
        async with self._cluster as cluster:
            written: Mapping[str, Any] | None = None
            while not self._ending.is_set():
                await asyncio.to_thread(self._ending.wait, self._every_s)
                written = await self._write_last(cluster, written)
            async with asyncio.timeout(self._closes_within_s):
                while written is not self._last and self._may_succeed:
                    await asyncio.sleep(TRIES_AGAIN_S)
                    written = await self._write_last(cluster, written)

    async def _write_last(self, cluster: Cluster, written: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Write the status now where it is another one; returns that which is written."""
        last = self._last
        if last is None or last is written or await self._write(cluster, last):
            return last
        return written

    async def _write(self, cluster: Cluster, status: Mapping[str, Any]) -> bool:
        try:
            await write_progress(cluster, status)
        except (OdradekError, OSError) as error:
            self._may_succeed = not isinstance(error, ApiError) or error.code.retriable
            if not self._failed:
                self._failed = True
                self._say(f"progress is not written to {TOPIC}: {error}")
            return False
        self._failed = False
        return True
