"""The rounds of a link: they ask several brokers for the source's leaders, and wait for none of these.

One broker may know of no leader for long, and a leader may not respond.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.common.real_io import RealClock
from odradek.link import source_offsets
from odradek.link.measures import Why
from odradek.link.mirroring import MirroredPartition
from odradek.link.service import STALE_MS, LinkRun
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.messages.metadata_response import MetadataResponsePartition
from odradek.settings.links import Link, Mirror, MirrorState
from tests.support.models.link_source import AnsweringSource


class Source(AnsweringSource):
    """Counts how often another broker is turned to."""

    turned = 0
    connects = 0

    def with_own_connections(self) -> Source:
        self.connects += 1
        return Source()

    async def prefer_another_broker(self) -> None:
        self.turned += 1


class SilentLeader(Source):
    """Does not respond to requests for offsets, and counts them."""

    asked = 0

    def _topics(self, request: Any) -> Any:
        response = super()._topics(request)
        for topic in response.topics:
            topic.partitions = [MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=5)]
        return response

    async def request(self, request: Any, response: Any, **more: Any) -> Any:
        if isinstance(request, ListOffsetsRequest):
            self.asked += 1
            await asyncio.Event().wait()
        return await super().request(request, response, **more)


@pytest.mark.parametrize(
    ("why", "since_ms", "turned"),
    [(Why.MOVING, STALE_MS, 1), (Why.UNREACHABLE, STALE_MS, 1), (Why.MOVING, 0, 0), (Why.DIVERGED, STALE_MS, 0)],
)
async def test_another_broker_is_asked_where_a_leader_lacks_for_long(
    mirrored: MirroredPartition, why: Why, since_ms: int, turned: int
) -> None:
    clock, source = RealClock(), Source()
    source.ids["t"] = mirrored.topic_id
    link = Link("west", "source.invalid:9092", {"t": Mirror("west", "t", MirrorState.ACTIVE, UUID(int=9))})
    made: list[Any] = []

    def connect(_: Link) -> Any:
        made.append(source)
        return source

    replicas: Any = SimpleNamespace(partition=lambda *_: mirrored.partition)
    run = LinkRun(link, connect, clock, replicas, lambda: None, [])
    mirrored.wait(why, "none leads", clock.now_ms() - since_ms)
    run.partitions["t", 0] = mirrored
    await run._refresh(dict(link.mirrors))
    await run.stop()
    assert source.turned == turned
    assert (len(made), source.connects) == (1, 1), "what the link connects with is read once"


def searching(mirrored: MirroredPartition) -> tuple[LinkRun, SilentLeader, Link]:
    """A link with this partition, whose leader at the source is broker 1."""
    source = SilentLeader()
    source.ids["t"] = mirrored.topic_id
    link = Link("west", "source.invalid:9092", {"t": Mirror("west", "t", MirrorState.ACTIVE, mirrored.topic_id)})
    replicas: Any = SimpleNamespace(partition=lambda *_: mirrored.partition)

    def connect(_: Link) -> Any:
        return source

    run = LinkRun(link, connect, RealClock(), replicas, lambda: None, [])
    mirrored.source_leader = 1
    run.partitions["t", 0] = mirrored
    return run, source, link


@pytest.mark.parametrize("state", ["is_paused", "stopped", "is_out_of_range"])
async def test_a_leader_without_an_answer_delays_no_round(mirrored: MirroredPartition, state: str) -> None:
    run, source, link = searching(mirrored)
    setattr(mirrored, state, True)
    for _ in range(3):
        await run._refresh(dict(link.mirrors))
        await asyncio.sleep(0)
    assert source.asked == 1, "each round has awaited a request of its own"
    await run.stop()
    assert not run._background


async def test_a_partition_waits_for_a_leader_that_returns_no_offsets(
    mirrored: MirroredPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_offsets, "OFFSETS_TIMEOUT_MS", 1)
    run, source, link = searching(mirrored)
    mirrored.is_out_of_range = True
    await run._refresh(dict(link.mirrors))
    await asyncio.gather(*run._background.values())
    (shown,) = run.measures().partitions
    assert (shown.state, shown.reason.why, shown.reason.text) == (
        "waiting",
        Why.UNREACHABLE,
        "the source did not return the offsets of its logs in time",
    )
    await run._refresh(dict(link.mirrors))
    await asyncio.gather(*run._background.values())
    assert source.asked == 2, "it is tried again"
    await run.stop()
