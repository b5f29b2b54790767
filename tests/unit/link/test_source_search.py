"""A link asks several brokers for the source's leaders, as one broker may know of none for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.common.real_io import RealClock
from odradek.link.measures import Why
from odradek.link.mirroring import MirroredPartition
from odradek.link.service import STALE_MS, LinkRun
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
