"""Registration, heartbeats, fencing, controlled shutdown, producer ids."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_registration_request import Feature, Listener
from tests.support.models.controller_harness import START_MS, Harness


def refused(harness: Harness, broker_id: int, incarnation: int = 0, **fields: Any) -> ErrorCode:
    request = harness.registration(broker_id, incarnation, **fields)
    with pytest.raises(ApiError) as caught:
        harness.machine.brokers.register(request, len(harness.log), harness.now_ms)
    return caught.value.code


def test_the_epoch_of_a_broker_is_the_offset_of_its_registration() -> None:
    harness = Harness()
    offset = len(harness.log)
    assert harness.register(1) == offset
    assert harness.state.brokers[1].fenced and harness.state.brokers[1].broker_epoch == offset


def test_registrations_that_are_refused() -> None:
    harness = Harness()
    harness.brokers(1)
    assert refused(harness, 2, cluster_id="other") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refused(harness, -1, listeners=[Listener(name="P", host="h", port=1)]) is ErrorCode.INVALID_REGISTRATION
    assert refused(harness, 2, listeners=[]) is ErrorCode.INVALID_REGISTRATION
    assert refused(harness, 2, log_dirs=[UUID(int=7), UUID(int=7)]) is ErrorCode.INVALID_REGISTRATION
    assert refused(harness, 2, log_dirs=[UUID(int=1001)]) is ErrorCode.INVALID_REGISTRATION
    assert refused(harness, 2, features=[]) is ErrorCode.UNSUPPORTED_VERSION
    old = [Feature(name="metadata.version", min_supported_version=1, max_supported_version=20)]
    assert refused(harness, 2, features=old) is ErrorCode.UNSUPPORTED_VERSION


def test_an_id_in_use_by_another_machine_is_refused_until_its_session_ends() -> None:
    harness = Harness()
    harness.brokers(1)
    other = {"log_dirs": [UUID(int=5)]}
    assert refused(harness, 1, 9, **other) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    harness.now_ms = START_MS + 9_001
    assert harness.register(1, 9, **other) > 0


def test_a_killed_broker_registers_again_before_its_session_ends() -> None:
    harness = Harness()
    harness.brokers(1)
    first = harness.state.brokers[1].broker_epoch
    assert harness.register(1, 5) > first
    assert harness.state.brokers[1].fenced


def test_the_same_process_registers_again_without_losing_its_place() -> None:
    harness = Harness()
    harness.brokers(1)
    epoch = harness.state.brokers[1].broker_epoch
    harness.beat(1, cordoned_log_dirs=[UUID(int=1001)])
    applied = harness.machine.brokers.sessions[1].metadata_offset
    again = harness.register(1, listeners=[Listener(name="PLAINTEXT", host="new", port=1)])
    broker = harness.state.brokers[1]
    assert again == epoch and not broker.fenced and broker.endpoints[0].host == "new"
    assert broker.cordoned_directories == (UUID(int=1001),)
    assert harness.machine.brokers.sessions[1].metadata_offset == applied, "a broker that stops waits for this one"


def test_a_broker_is_unfenced_only_when_it_has_seen_its_own_registration() -> None:
    harness = Harness()
    epoch = harness.register(1)
    answer = harness.beat(1, offset=epoch - 1)
    assert answer.is_fenced and not answer.is_caught_up
    answer = harness.beat(1, offset=epoch, want_fence=True)
    assert answer.is_fenced and answer.is_caught_up
    answer = harness.beat(1, offset=epoch)
    assert not answer.is_fenced and not harness.state.brokers[1].fenced


def test_heartbeats_of_unknown_brokers_and_old_epochs_are_refused() -> None:
    harness = Harness()
    harness.brokers(1)
    for broker_id, epoch, expected in (
        (2, 0, ErrorCode.STALE_BROKER_EPOCH),
        (1, harness.state.brokers[1].broker_epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        with pytest.raises(ApiError) as caught:
            harness.machine.brokers.heartbeat(BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch), 0, 0)
        assert caught.value.code is expected


def test_silence_fences_and_takes_leadership_and_a_beat_gives_it_back() -> None:
    harness = Harness(broker_session_timeout_ms=100)
    harness.brokers(1)
    harness.topic("t", [1])
    assert harness.do(harness.machine.brokers.fence_expired(START_MS + 99)) is None
    assert harness.do(harness.machine.brokers.fence_expired(START_MS + 100)) == 1
    assert harness.state.brokers[1].fenced
    offline = harness.partition("t")
    assert offline.leader == -1 and offline.leader_epoch == 1
    assert offline.isr == () and offline.elr == (1,)  # KIP-966: eligible because it left below min.insync.replicas
    harness.now_ms = START_MS + 200
    harness.beat(1)
    back = harness.partition("t")
    assert (back.leader, back.isr, back.elr, back.leader_recovery_state) == (1, (1,), (), 0)


def test_a_suspected_broker_is_fenced_early_unless_it_is_back() -> None:
    harness = Harness(broker_session_timeout_ms=100)
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    dead = harness.state.brokers[1].broker_epoch
    harness.do(harness.machine.brokers.fence_dead(1, dead))
    assert harness.state.brokers[1].fenced
    assert (harness.partition("t").leader, harness.partition("t").isr) == (2, (2,))
    written = len(harness.log)
    harness.do(harness.machine.brokers.fence_dead(1, dead))
    assert len(harness.log) == written, "it is fenced once"
    harness.register(1, 5)
    harness.beat(1)
    with pytest.raises(ApiError) as caught:
        harness.machine.brokers.fence_dead(1, dead)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(ApiError) as caught:
        harness.machine.brokers.fence_dead(9, 0)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_new_leader_epoch_knows_whom_it_has_not_heard_yet() -> None:
    harness = Harness()
    harness.brokers(1, 2, 3)
    brokers = harness.machine.brokers
    brokers.begin_sessions(harness.now_ms)
    epochs = {broker_id: harness.state.brokers[broker_id].broker_epoch for broker_id in (1, 2, 3)}
    assert brokers.brokers_without_heartbeat() == list(epochs.items())
    harness.beat(2)
    assert brokers.brokers_without_heartbeat() == [(1, epochs[1]), (3, epochs[3])]
    harness.do(brokers.fence_dead(3, epochs[3]))
    assert brokers.brokers_without_heartbeat() == [(1, epochs[1])]


def test_without_elr_the_last_replica_stays_in_the_isr() -> None:
    harness = Harness(broker_session_timeout_ms=100)
    harness.state.features.pop("eligible.leader.replicas.version")
    harness.brokers(1)
    harness.topic("t", [1])
    harness.do(harness.machine.brokers.fence_expired(START_MS + 100))
    assert harness.partition("t").leader == -1 and harness.partition("t").isr == (1,)
    harness.now_ms = START_MS + 200
    harness.beat(1)
    assert harness.partition("t").leader == 1


def test_the_longest_silent_is_fenced_first_and_leaders_move() -> None:
    harness = Harness(broker_session_timeout_ms=100)
    harness.brokers(1, 2, 3)
    harness.topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    harness.now_ms = START_MS + 50
    harness.beat(3)
    harness.now_ms = START_MS + 120
    harness.machine.brokers.sessions[2].at_ms = START_MS - 5
    assert harness.do(harness.machine.brokers.fence_expired(START_MS + 120)) == 2
    assert harness.do(harness.machine.brokers.fence_expired(START_MS + 120)) == 1
    assert harness.do(harness.machine.brokers.fence_expired(START_MS + 120)) is None
    assert [harness.partition("t", number).leader for number in range(3)] == [3, 3, 3]
    assert all(harness.partition("t", number).isr == (3,) for number in range(3))


def test_controlled_shutdown_moves_leaders_before_the_broker_may_go() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    answer = harness.beat(1, want_shut_down=True)
    assert not answer.should_shut_down
    assert harness.partition("t").leader == 2 and harness.partition("t").isr == (2,)
    assert not harness.beat(1, want_shut_down=True).should_shut_down, "broker 2 may not know yet"
    harness.beat(2, offset=len(harness.log) - 2)
    assert not harness.beat(1, want_shut_down=True).should_shut_down
    harness.beat(2)
    answer = harness.beat(1)
    assert answer.should_shut_down and harness.state.brokers[1].fenced


def test_a_broker_that_leads_nothing_stops_at_once() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [2, 1])
    assert harness.beat(1, want_shut_down=True).should_shut_down
    assert harness.partition("t").isr == (2,)


def test_the_only_broker_may_stop_too() -> None:
    harness = Harness()
    harness.brokers(1)
    harness.topic("t", [1])
    harness.beat(1, want_shut_down=True)
    assert harness.beat(1, want_shut_down=True).should_shut_down
    epoch = harness.state.brokers[1].broker_epoch
    harness.register(1, 2, previous_broker_epoch=epoch)
    harness.beat(1)
    back = harness.partition("t")
    assert (back.leader, back.leader_recovery_state) == (1, 0)


def test_the_last_known_leader_leads_again_after_an_unclean_restart() -> None:
    harness = Harness()
    harness.brokers(1)
    harness.topic("t", [1])
    harness.register(1, 2, previous_broker_epoch=-1)
    down = harness.partition("t")
    assert (down.leader, down.isr, down.elr, down.last_known_elr) == (-1, (), (), (1,))
    harness.beat(1)
    back = harness.partition("t")
    assert (back.leader, back.isr, back.leader_recovery_state, back.last_known_elr) == (1, (1,), 1, ())


def test_a_stopping_broker_is_not_elected_and_a_fenced_one_may_stop() -> None:
    harness = Harness()
    harness.register(1)
    assert harness.beat(1, want_shut_down=True).should_shut_down


def test_lost_and_cordoned_directories_are_recorded() -> None:
    harness = Harness()
    directories = [UUID(int=1), UUID(int=2)]
    harness.brokers(1, log_dirs=directories)
    harness.beat(1, cordoned_log_dirs=[UUID(int=2)])
    assert harness.state.brokers[1].cordoned_directories == (UUID(int=2),)
    with pytest.raises(ApiError) as caught:
        harness.beat(1, cordoned_log_dirs=[UUID(int=3)])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    harness.beat(1, offline_log_dirs=[UUID(int=2)])
    assert harness.state.brokers[1].directories == (UUID(int=1),)


def test_unregistering() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    harness.topic("t", [1, 2])
    harness.do(harness.machine.brokers.unregister(1))
    assert 1 not in harness.state.brokers and harness.partition("t").leader == 2
    with pytest.raises(ApiError) as caught:
        harness.machine.brokers.unregister(1)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    harness = Harness()
    harness.brokers(1, 2)
    starts = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(
            broker_id=broker_id, broker_epoch=harness.state.brokers[broker_id].broker_epoch
        )
        answer = harness.do(harness.machine.brokers.allocate_producer_ids(request))
        starts.append((answer.producer_id_start, answer.producer_id_len))
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    with pytest.raises(ApiError) as caught:
        harness.machine.brokers.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1, broker_epoch=0))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_new_leader_epoch_gives_every_serving_broker_a_whole_session() -> None:
    harness = Harness(broker_session_timeout_ms=100)
    harness.brokers(1)
    harness.machine.brokers.begin_sessions(START_MS + 1000)
    assert harness.do(harness.machine.brokers.fence_expired(START_MS + 1099)) is None
    assert harness.do(harness.machine.brokers.fence_expired(START_MS + 1100)) == 1


def test_brokers_without_a_rack_are_reported_where_others_have_one() -> None:
    harness = Harness()
    harness.brokers(1, 2, rack=None)
    assert harness.machine.brokers.without_rack() == []
    harness.brokers(3, rack="a")
    assert harness.machine.brokers.without_rack() == [1, 2]
