"""Pages that need the same at the same time share one request, until it is too old or a change invalidates it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from odradek.client.cluster import Cluster
from odradek.console.shared import Shared

NO_CLUSTER = cast(Cluster, None)


class Asked:
    """Counts its calls, each of which takes a while."""

    def __init__(self) -> None:
        self.times = 0
        self.now_s = 0.0
        self.fails = False

    async def work(self, _: Cluster) -> int:
        self.times += 1
        await asyncio.sleep(0)
        if self.fails:
            raise OSError("away")
        return self.times


async def test_pages_that_ask_together_get_one_answer() -> None:
    asked = Asked()
    shared = Shared(asked.work, 2.5, lambda: asked.now_s)
    assert await asyncio.gather(*(shared.get(NO_CLUSTER) for _ in range(5))) == [1] * 5
    asked.now_s = 2.0
    assert await shared.get(NO_CLUSTER) == 1
    asked.now_s = 2.5
    assert await shared.get(NO_CLUSTER) == 2
    shared.invalidate()
    assert await shared.get(NO_CLUSTER) == 3


async def test_a_page_that_goes_takes_no_answer_from_others() -> None:
    asked = Asked()
    shared = Shared(asked.work, 2.5, lambda: asked.now_s)
    gone, stays = (asyncio.ensure_future(shared.get(NO_CLUSTER)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == 1
    asked.fails, asked.now_s = True, 5.0
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await shared.get(NO_CLUSTER)
    assert asked.times == 2
