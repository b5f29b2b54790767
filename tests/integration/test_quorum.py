"""Controllers as real processes: kill -9 of the leader, a restart, a lost disk, a pause, all at once."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes.node import START_TIMEOUT_S
from tests.support.nodes.quorum_processes import QuorumProcess, described, leader_of, static_controllers, write

# Followers hear of their leader twice a second at least.
FETCH_TIMEOUT_S = 5.0
ALMOST_FETCH_TIMEOUT_S = 4.9
# The leader wakes later than the others by this: enough for an election by voters that mistake their own pause for its
# silence.
LATER_S = 0.6
# If this process takes longer than that to wake the leader, the leader was silent indeed.
MUCH_LATER_S = 3.0


@pytest.fixture
def settings() -> dict[str, object]:
    return {}


@pytest.fixture
def controllers(tmp_path: Path, settings: dict[str, object]) -> Iterator[list[QuorumProcess]]:
    nodes = static_controllers(tmp_path, 3, **settings)
    for node in nodes:
        node.launch()
    for node in nodes:
        node.await_port()
    yield nodes
    for node in nodes:
        if node.process is not None:
            node.resume()
            node.stop()


async def caught_up(nodes: list[QuorumProcess]) -> None:
    """Return when all running voters have all that the leader has."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            found = await described(nodes)
            if found is not None:
                ends = {voter.log_end_offset for voter in found[1].current_voters}
                if ends == {found[1].high_watermark}:
                    return
            await asyncio.sleep(0.05)


async def test_metadata_goes_on_when_the_leader_is_killed_again_and_again(controllers: list[QuorumProcess]) -> None:
    leader = await leader_of(controllers)
    await write(controllers, 50_000)
    for round_number in range(3):
        leader.kill()
        again = await write(controllers, 50_001 + round_number)
        assert again is not leader
        leader.start()
        leader = again
    await caught_up(controllers)
    assert not any("Traceback" in node.log_text() for node in controllers)


async def test_a_voter_without_its_disk_fetches_a_snapshot(tmp_path: Path) -> None:
    limits = {
        "metadata.log.max.record.bytes.between.snapshots": 3000,
        "metadata.max.retention.bytes": 4000,
        "controller.quorum.fetch.snapshot.max.bytes": 300,
    }
    nodes = static_controllers(tmp_path, 3, **limits)
    for node in nodes:
        node.start()
    try:
        leader = await leader_of(nodes)
        lost = next(node for node in nodes if node is not leader)
        lost.kill()
        lost.wipe()
        for number in range(120):
            leader = await write(nodes, 50_000 + number, f"group-{number % 7}")
        async with asyncio.timeout(START_TIMEOUT_S):
            while min(leader.metadata_dir.glob("*.log")).name == f"{0:020d}.log":  # noqa: ASYNC110 - the node sends no event of this
                await asyncio.sleep(0.05)
        lost.format().start()
        await caught_up(nodes)
        assert re.search("metadata snapshot fetched", lost.log_text())
        # It counts: with it alone beside the leader there is a majority.
        third = next(node for node in nodes if node not in (leader, lost))
        third.kill()
        await write(nodes, 60_000)
    finally:
        for node in nodes:
            if node.process is not None:
                node.stop()


async def test_a_leader_that_was_paused_is_no_leader_when_it_returns(controllers: list[QuorumProcess]) -> None:
    leader = await leader_of(controllers)
    await write(controllers, 50_000)
    leader.pause()
    others = [node for node in controllers if node is not leader]
    await write(others, 50_001)
    between = await described(others)
    assert between is not None
    leader.resume()
    await caught_up(controllers)
    found = await described(controllers)
    assert found is not None
    assert found[0] is not leader or found[1].leader_epoch > between[1].leader_epoch, "unless it is elected again"
    assert "Traceback" not in leader.log_text()


@pytest.mark.parametrize("settings", [{"controller.quorum.fetch.timeout.ms": round(FETCH_TIMEOUT_S * 1000)}])
async def test_a_pause_of_all_voters_expires_no_session(controllers: list[QuorumProcess]) -> None:
    """A busy machine pauses processes so; voters must not replace their leader each time."""
    kept = number = 0
    while kept < 2:
        leader = await leader_of(controllers)
        await caught_up(controllers)
        before = await described(controllers)
        assert before is not None
        for node in controllers:
            node.pause()
        await asyncio.sleep(ALMOST_FETCH_TIMEOUT_S)
        awake = time.monotonic()
        for node in controllers:
            if node is not leader:
                node.resume()
        await asyncio.sleep(LATER_S)
        leader.resume()
        number += 1
        if time.monotonic() - awake > MUCH_LATER_S:
            continue
        await write(controllers, 50_000 + number)
        after = await described(controllers)
        assert after is not None and after[0] is leader
        assert after[1].leader_epoch == before[1].leader_epoch
        kept += 1


async def test_all_killed_at_once_know_everything_again(controllers: list[QuorumProcess]) -> None:
    await leader_of(controllers)
    for number in range(5):
        await write(controllers, 50_000 + number, f"group-{number}")
    found = await described(controllers)
    assert found is not None
    committed = found[1].high_watermark
    for node in controllers:
        node.kill()
    for node in controllers:
        node.start()
    await leader_of(controllers)
    await caught_up(controllers)
    found = await described(controllers)
    assert found is not None and found[1].high_watermark > committed


async def test_rolling_restarts_keep_the_quorum(controllers: list[QuorumProcess]) -> None:
    await leader_of(controllers)
    for number, node in enumerate(controllers):
        assert node.stop() == 0
        await write(controllers, 50_000 + number)
        node.start()
        await caught_up(controllers)
