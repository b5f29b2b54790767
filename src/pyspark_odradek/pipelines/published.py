"""Writes the status of a run to a topic (`--progress-to`), for readers without access to the folder of the run.

A thread of its own writes the last status every few seconds, and at the end. If the cluster refuses it, that is
reported once and does not end the run.
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
# The longest wait for a cluster at the end of a run; writes are retried meanwhile.
CLOSES_WITHIN_S = 5.0
TRIES_AGAIN_S = 0.5


class StatusWriter:
    """Writes the statuses of `put`; a context manager."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, str],
        say: Callable[[str], None],
        every_s: float = EVERY_S,
        closes_within_s: float = CLOSES_WITHIN_S,
    ) -> None:
        """Raises PipelineError for an invalid address or invalid properties."""
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

    def __enter__(self) -> StatusWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(self._closes_within_s)

    def put(self, status: Mapping[str, Any]) -> None:
        """Set the present status; between two writes, only the last one is written."""
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
        """Write the present status if it has changed; returns the last written one."""
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
