"""Clients that change the cluster at random while others use it: each change that they begin must be completed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from odradek.common.errors import OdradekError
from tests.sim.clients import RETRY_S, Client, Recorder
from tests.sim.world import World


class ChaosClient(Client, ABC):
    """Acts until it is stopped, then completes what it has begun."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        super().__init__(world, name, process, recorder)
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self.act()
            except OdradekError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self.pause_s())
        await self.finish()

    @abstractmethod
    async def act(self) -> None:
        """Do one thing. Raises OdradekError where the cluster does not do it now."""

    @abstractmethod
    def pause_s(self) -> float:
        """The seconds until the next one."""

    @abstractmethod
    async def finish(self) -> None:
        """Return when nothing that was begun is left half done."""
