"""Turns of a loop, counted in units of work."""

from __future__ import annotations

import asyncio

from odradek.common.turns import Turns


async def test_a_turn_ends_after_its_units() -> None:
    ends = 0

    async def other() -> None:
        nonlocal ends
        while True:
            await asyncio.sleep(0)
            ends += 1

    task = asyncio.get_running_loop().create_task(other())
    turns = Turns(10)
    for _ in range(100):
        await turns.spend()
    await turns.spend(1000)
    task.cancel()
    assert ends == 10
