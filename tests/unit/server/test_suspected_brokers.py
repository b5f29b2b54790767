"""Metadata about brokers that are going: no stale leader, and no sudden gap."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek.server.lifecycle.suspected_brokers import ADVERTISED_MS, SUSPICION_MS, SuspectedBrokers

FENCED, UNFENCED = 1, -1


@dataclass
class Stopped:
    """A clock that a test advances."""

    ms: int = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class World:
    """A broker's view of one other broker, number 7, epoch 3."""

    def __init__(self) -> None:
        self.clock = Stopped()
        self.suspected_brokers = SuspectedBrokers(self.clock)
        self.image = MetadataImage()
        self.replay(RegisterBrokerRecord(broker_id=7, broker_epoch=3, fenced=False))

    def replay(self, record: object) -> None:
        delta = MetadataDelta(self.image)
        delta.replay(record)
        self.image = delta.apply(self.image.offset + 1, 1)
        self.suspected_brokers.on_metadata(delta, self.image)

    def fence(self, how: int) -> None:
        self.replay(BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=3, fenced=how))


async def turns() -> None:
    """Let the event loop run as often as any task that has become ready can need."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_fenced_broker_is_named_a_while_longer() -> None:
    world = World()
    assert not world.suspected_brokers.is_advertised(7)
    world.fence(FENCED)
    assert world.suspected_brokers.is_advertised(7)
    world.clock.ms += ADVERTISED_MS - 1
    assert world.suspected_brokers.is_advertised(7)
    world.clock.ms += 1
    assert not world.suspected_brokers.is_advertised(7)


def test_a_suspicion_ends_with_the_brokers_registration() -> None:
    world = World()
    world.fence(FENCED)
    world.replay(RegisterBrokerRecord(broker_id=7, broker_epoch=9, fenced=True))
    assert not world.suspected_brokers.is_advertised(7)
    world = World()
    world.fence(FENCED)
    world.replay(UnregisterBrokerRecord(broker_id=7, broker_epoch=3))
    assert not world.suspected_brokers.is_advertised(7)


async def test_doubt_ends_with_news() -> None:
    for news in ("fenced", "answers"):
        world = World()
        assert not world.suspected_brokers.any_suspected
        world.suspected_brokers.suspect(7)
        assert world.suspected_brokers.any_suspected and world.suspected_brokers.suspected() == {7}
        waiting = asyncio.ensure_future(world.suspected_brokers.wait_resolved([7]))
        others = asyncio.ensure_future(world.suspected_brokers.wait_resolved([8]))
        await turns()
        assert others.done() and not waiting.done()
        world.fence(FENCED) if news == "fenced" else world.suspected_brokers.clear_suspicion(7)
        await waiting
        assert not world.suspected_brokers.any_suspected


async def test_doubt_ends_by_itself() -> None:
    world = World()
    world.suspected_brokers.suspect(7)
    world.clock.ms += SUSPICION_MS - 20
    waiting = asyncio.ensure_future(world.suspected_brokers.wait_resolved([7]))
    await asyncio.sleep(0)
    assert not waiting.done()
    world.clock.ms += 20
    await waiting
    assert world.suspected_brokers.suspected() == set()
    assert not world.suspected_brokers.any_suspected


async def test_news_of_one_does_not_settle_the_other() -> None:
    world = World()
    world.suspected_brokers.suspect(7)
    world.suspected_brokers.suspect(8)
    waiting = asyncio.ensure_future(world.suspected_brokers.wait_resolved([7, 8]))
    await asyncio.sleep(0)
    world.suspected_brokers.clear_suspicion(8)
    await turns()
    assert not waiting.done()
    world.suspected_brokers.clear_suspicion(7)
    await waiting
