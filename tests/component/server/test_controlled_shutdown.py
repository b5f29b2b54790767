"""The end of a controlled shutdown: when the broker has no leaderships left, and the last responses to its clients."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage
from odradek.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.server.lifecycle import controlled_shutdown
from odradek.server.lifecycle.controlled_shutdown import ControlledShutdown, shutdown_is_complete
from tests.support.nodes.listener import ScriptedListener
from tests.support.waiting import eventually_async

ME, OTHER, EPOCH = 1, 2, 5
TOPIC = UUID(int=9)
ASKED_TO_STOP = BrokerRegistrationChangeRecord(broker_id=ME, broker_epoch=EPOCH, in_controlled_shutdown=1)
MOVED = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=OTHER, isr=[OTHER])


class View:
    """The metadata image of one broker, which leads a partition at first."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.delta = MetadataDelta(self.image)
        self.replay(
            RegisterBrokerRecord(broker_id=ME, broker_epoch=EPOCH, fenced=False),
            RegisterBrokerRecord(broker_id=OTHER, broker_epoch=6, fenced=False),
            TopicRecord(name="t", topic_id=TOPIC),
            PartitionRecord(
                topic_id=TOPIC,
                partition_id=0,
                replicas=[ME, OTHER],
                isr=[ME, OTHER],
                leader=ME,
                leader_epoch=0,
                partition_epoch=0,
            ),
        )

    def replay(self, *records: object) -> None:
        self.delta = MetadataDelta(self.image)
        for record in records:
            self.delta.replay(record)
        self.image = self.delta.apply(self.image.offset + 1, 1)


def test_a_stopping_broker_without_leaderships_has_handed_over() -> None:
    view = View()
    assert not shutdown_is_complete(view.image, ME, EPOCH)
    view.replay(ASKED_TO_STOP)
    assert not shutdown_is_complete(view.image, ME, EPOCH), "it still leads"
    view.replay(MOVED)
    assert shutdown_is_complete(view.image, ME, EPOCH)
    assert not shutdown_is_complete(view.image, ME, EPOCH + 1), "a process before this one asked"
    assert not shutdown_is_complete(view.image, OTHER, 6), "it never asked"
    assert not shutdown_is_complete(view.image, 3, EPOCH), "no broker knows it yet"


async def test_later_results_are_not_sent_and_the_connection_closes() -> None:
    async with ScriptedListener() as listener:
        client = await listener.client()
        hand_over, view = ControlledShutdown(listener.dispatcher, ME, lambda: EPOCH), View()
        hand_over.on_metadata(view.delta, view.image)
        await client.beat(1)
        assert await client.numbers(1) == [1]
        await client.beat(2, "wait")
        await eventually_async(lambda: 2 in listener.waits)
        view.replay(ASKED_TO_STOP, MOVED)
        hand_over.on_metadata(view.delta, view.image)
        listener.finish(2)
        await client.beat(3)
        assert await client.is_silent()
        hand_over.disconnect_clients()
        assert await client.is_closed()
        assert 3 not in listener.begun
        client.close()
        later = await listener.client()
        await later.beat(4)
        assert await later.numbers(1) == [4]
        later.close()


async def test_no_one_is_held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker may be dead and tell the controller nothing, which is asked to wait for it."""
    monkeypatch.setattr(controlled_shutdown, "HOLD_MS", 1)
    async with ScriptedListener() as listener:
        client = await listener.client()
        hand_over, view = ControlledShutdown(listener.dispatcher, ME, lambda: EPOCH), View()
        view.replay(ASKED_TO_STOP, MOVED)
        hand_over.on_metadata(view.delta, view.image)
        assert await client.is_closed()
        client.close()
        # Metadata that arrives afterwards holds no connection again.
        hand_over.on_metadata(view.delta, view.image)
        await asyncio.sleep(0)
        later = await listener.client()
        await later.beat(4)
        assert await later.numbers(1) == [4]
        later.close()
