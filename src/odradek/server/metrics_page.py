"""Builds the page of metrics. With ten thousand partitions this takes seconds, during which clients are served: the
values are collected in several turns of the event loop, and a thread formats the text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from odradek.common.log_lines import get_logger
from odradek.common.metrics import Family
from odradek.common.real_threads import off_loop
from odradek.server.network.http_pages import Page
from odradek.server.prometheus import exposition

_log = get_logger("server.metrics_page")


class MetricsPage:
    """Builds one page at a time; concurrent requests get the same page."""

    def __init__(self, families: Callable[[], Awaitable[list[Family]]], *, processes: bool) -> None:
        """`processes`: include the metrics of the process."""
        self._families = families
        self._processes = processes
        self._building: asyncio.Task[Page] | None = None

    def page(self) -> asyncio.Future[Page]:
        """The page as of now, or as of when the one was begun that is under way."""
        if self._building is None:
            self._building = asyncio.get_running_loop().create_task(self._build())
            self._building.add_done_callback(self._on_page)
        return self._building

    async def _build(self) -> Page:
        families = await self._families()
        return Page(await off_loop(partial(exposition, families, processes=self._processes)))

    def _on_page(self, building: asyncio.Task[Page]) -> None:
        self._building = None
        if not building.cancelled() and (error := building.exception()) is not None:
            _log.bug("metrics cannot be shown", error)

    async def stop(self) -> None:
        """Cancel the scrape under way."""
        if self._building is not None:
            self._building.cancel()
            await asyncio.gather(self._building, return_exceptions=True)
