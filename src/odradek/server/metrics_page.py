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
        self._making: asyncio.Task[Page] | None = None

    def page(self) -> asyncio.Future[Page]:
        """The page as of now, or as of when the one was begun that is under way."""
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make())
            self._making.add_done_callback(self._made)
        return self._making

    async def _make(self) -> Page:
        families = await self._families()
        return Page(await off_loop(partial(exposition, families, processes=self._processes)))

    def _made(self, making: asyncio.Task[Page]) -> None:
        self._making = None
        if not making.cancelled() and (error := making.exception()) is not None:
            _log.bug("metrics cannot be shown", error)

    async def stop(self) -> None:
        """Cancel the scrape under way."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
