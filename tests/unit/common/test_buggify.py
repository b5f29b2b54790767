"""Points at which a simulator may hold tasks up do nothing where there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

from odradek.common.buggify import buggify, simulated

SOURCES = Path(__file__).resolve().parents[3] / "src" / "odradek"


async def passes(point: str) -> str:
    await buggify(point)
    return "done"


def test_a_point_neither_waits_nor_lets_others_run() -> None:
    for _ in range(3):
        coroutine = passes("a: point")
        try:
            coroutine.send(None)
        except StopIteration as ended:
            assert ended.value == "done"
        else:
            raise AssertionError("it gave its turn away")
    assert buggify("one") is buggify("another"), "nothing is made for it"


async def test_a_simulator_decides_how_long_until_its_block_ends() -> None:
    seen = []

    async def hook(point: str) -> None:
        seen.append(point)
        await asyncio.sleep(0)

    with simulated(hook):
        assert await passes("a: point") == "done"
        coroutine = passes("another: point")
        coroutine.send(None)
        coroutine.close()
    await passes("a third")
    assert seen == ["a: point", "another: point"]


def test_each_point_has_a_name_of_its_own() -> None:
    names = [
        line.split('await buggify("')[1].split('"')[0]
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "buggify.py"
        for line in path.read_text().splitlines()
        if 'await buggify("' in line
    ]
    assert len(names) == len(set(names)) >= 10
