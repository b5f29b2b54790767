"""Log directories that are offline or full: which replicas leave the in-sync sets, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ErrorCode
from odradek.metadata.model import UNASSIGNED_DIRECTORY
from odradek.protocol.extras import full_log_dirs_field
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from tests.support.models.controller_harness import Harness, wanted
from tests.unit.controller.test_controller_refusals import move

PARTITIONS = [("t", 0), ("t", 1), ("t", 2), ("alone", 0)]


def directory(broker_id: int) -> UUID:
    return UUID(int=1000 + broker_id)


def started() -> Harness:
    """Three brokers with one directory each, pairs of them with a partition, and broker 2 with one alone."""
    harness = Harness()
    harness.brokers(1, 2, 3)
    harness.topic("t", [1, 2], [2, 1], [1, 3])
    harness.topic("alone", [2])
    return harness


def leaders(harness: Harness) -> list[int]:
    return [harness.partition(*each).leader for each in PARTITIONS]


def isr(harness: Harness) -> list[tuple[int, ...]]:
    return [harness.partition(*each).isr for each in PARTITIONS]


def full(*broker_ids: int) -> dict[str, Any]:
    """The field of a heartbeat, with the directories of these brokers."""
    return {"unknown_tagged_fields": (full_log_dirs_field([directory(each) for each in broker_ids]),)}


def lose_by_heartbeat(harness: Harness) -> None:
    harness.beat(2, offline_log_dirs=[directory(2)])


def lose_by_registration(harness: Harness) -> None:
    harness.register(2, log_dirs=[UUID(int=7)])


@pytest.mark.parametrize("lose", [lose_by_heartbeat, lose_by_registration])
def test_a_broker_leaves_the_isr_of_what_its_lost_directory_had(lose: Callable[[Harness], None]) -> None:
    harness = started()
    lose(harness)
    assert isr(harness)[:3] == [(1,), (1,), (1, 3)]
    assert leaders(harness) == [1, 1, 1, -1]


def test_a_lost_directory_of_another_broker_is_ignored() -> None:
    harness = started()
    length = len(harness.log)
    harness.beat(1, offline_log_dirs=[directory(2)])
    assert len(harness.log) == length


def test_a_broker_without_space_leaves_the_isr_while_others_can_write() -> None:
    harness = started()
    harness.beat(2, **full(2))
    assert isr(harness) == [(1,), (1,), (1, 3), (2,)], "alone it stays: there is no other"
    assert leaders(harness) == [1, 1, 1, 2]
    length = len(harness.log)
    harness.beat(2, **full(2))
    assert len(harness.log) == length


def test_a_broker_without_space_that_stops_leaves_each_isr_once() -> None:
    harness = started()
    begin = len(harness.log)
    assert not harness.beat(2, want_shut_down=True, **full(2)).should_shut_down
    changed = [record.partition_id for record in harness.log[begin:] if isinstance(record, PartitionChangeRecord)]
    assert sorted(changed) == [0, 0, 1], "of topic t, and of the one in which it is alone"
    assert isr(harness)[:3] == [(1,), (1,), (1, 3)]


@pytest.mark.parametrize(("log_dirs", "chosen"), [(1, directory(4)), (2, UNASSIGNED_DIRECTORY)])
def test_only_a_broker_with_one_directory_gets_its_new_replica_there(log_dirs: int, chosen: UUID) -> None:
    harness = started()
    harness.brokers(4, log_dirs=[directory(4), UUID(int=7)][:log_dirs])
    assert move(harness, 1, 4) == ErrorCode.NONE
    assert harness.partition("t").directory(4) == chosen


def test_of_two_brokers_without_space_none_leaves() -> None:
    harness = started()
    harness.beat(1, **full(1))
    assert isr(harness) == [(2,), (2,), (3,), (2,)]
    harness.beat(2, **full(2))
    assert isr(harness) == [(2,), (2,), (3,), (2,)], "the only one in sync"


def joins(harness: Harness, number: int, broker_id: int) -> int:
    """The error code of a leader that wants a broker in the in-sync set."""
    partition = harness.partition("t", number)
    wanted_isr = [
        BrokerState(broker_id=each, broker_epoch=harness.state.brokers[each].broker_epoch)
        for each in (*partition.isr, broker_id)
    ]
    data = PartitionData(
        partition_index=number,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=wanted_isr,
    )
    leader = harness.state.brokers[partition.leader]
    request = AlterPartitionRequest(
        broker_id=leader.broker_id,
        broker_epoch=leader.broker_epoch,
        topics=[TopicData(topic_id=harness.state.topic_ids["t"], partitions=[data])],
    )
    answer = harness.do(harness.machine.partitions.alter_partition(request))
    return int(answer.topics[0].partitions[0].error_code)


def has_space_again(harness: Harness) -> None:
    harness.beat(2)


def registers_again(harness: Harness) -> None:
    harness.register(2)


def starts_again(harness: Harness) -> None:
    harness.brokers(2, incarnation=1)


@pytest.mark.parametrize("ends", [has_space_again, registers_again, starts_again])
def test_a_broker_joins_the_isr_again_when_it_has_space(ends: Callable[[Harness], None]) -> None:
    harness = started()
    harness.beat(2, **full(2))
    assert joins(harness, 0, 2) == ErrorCode.INELIGIBLE_REPLICA
    ends(harness)
    assert joins(harness, 0, 2) == ErrorCode.NONE
    assert harness.partition("t").isr == (1, 2)


def test_a_broker_that_is_unregistered_is_not_full() -> None:
    harness = started()
    harness.beat(2, **full(2))
    harness.do(harness.machine.brokers.unregister(2))
    assert not harness.state.is_full(2)


def test_new_partitions_begin_on_brokers_with_space() -> None:
    harness = started()
    harness.beat(2, **full(2))
    for number in range(5):
        harness.create(wanted(f"n{number}", partitions=3, factor=3))
        for partition_id in range(3):
            assert harness.partition(f"n{number}", partition_id).replicas[0] != 2
    harness.create(wanted("two", partitions=6, factor=2))
    assert all(2 not in harness.partition("two", partition_id).replicas for partition_id in range(6))
    for broker_id in (1, 3):
        harness.beat(broker_id, **full(broker_id))
    harness.create(wanted("all", partitions=6))
    firsts = {harness.partition("all", partition_id).replicas[0] for partition_id in range(6)}
    assert firsts == {1, 2, 3}, "all are full: none is better than another"
