"""A broker joins, sends heartbeats, is asked to shut down, and leaves: with a real controller over real files."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.config import ControllerConfig
from odradek.controller.service import ControllerService
from odradek.log.log_dir import LogDir
from odradek.metadata.model import NO_LEADER, broker_record
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.broker_registration_request import BrokerRegistrationRequest, Listener
from odradek.protocol.messages.broker_registration_response import BrokerRegistrationResponse
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.server.lifecycle.broker_lifecycle import BrokerLifecycle, BrokerLifecycleConfig
from tests.support.disks.failing import FailingDisk
from tests.support.models.controller_harness import CLUSTER, Harness, wanted
from tests.support.nodes.quorum_node import QuorumNode
from tests.support.waiting import PATIENCE_S, eventually_async

QUICK = BrokerLifecycleConfig(heartbeat_interval_ms=10, registration_timeout_ms=60_000)


class Member:
    """One broker's membership, and its notifications."""

    def __init__(self, node: QuorumNode, config: BrokerLifecycleConfig = QUICK, broker_id: int = 1) -> None:
        self.node = node
        self.broker_id = broker_id
        self.failures: list[BaseException] = []
        self.directories: list[LogDir] = []
        self.metadata_offset: int | None = None
        self.lifecycle = BrokerLifecycle(
            config,
            cast(Any, node.service),
            broker_id=broker_id,
            metadata_offset=lambda: (
                node.publisher.image.offset if self.metadata_offset is None else self.metadata_offset
            ),
            directories=lambda: self.directories,
            on_failed=self.failures.append,
        )

    async def join(self, incarnation: int = 0) -> None:
        await self.lifecycle.register(Harness().registration(self.broker_id, incarnation), self.node.publisher)
        await self.lifecycle.join(self.node.publisher)

    @property
    def is_fenced(self) -> bool:
        return self.node.publisher.image.brokers[self.broker_id].fenced


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[QuorumNode]:
    started = await QuorumNode(tmp_path).start()
    yield started
    await started.stop()


async def test_a_broker_is_in_when_join_returns(node: QuorumNode) -> None:
    member = Member(node)
    await member.join()
    assert not member.is_fenced
    assert member.lifecycle.broker_epoch == node.publisher.image.brokers[1].broker_epoch
    await member.lifecycle.shut_down()


async def test_a_broker_stays_fenced_until_it_has_caught_up(node: QuorumNode) -> None:
    member = Member(node)
    member.metadata_offset = 0
    joining = asyncio.ensure_future(member.join())
    await eventually_async(lambda: 1 in node.publisher.image.brokers)
    done, _ = await asyncio.wait([joining], timeout=0.15)
    assert not done and member.is_fenced
    member.metadata_offset = None
    await asyncio.wait_for(joining, PATIENCE_S)
    await eventually_async(lambda: not member.is_fenced)
    await member.lifecycle.shut_down()


async def test_a_broker_stays_fenced_until_its_own_metadata_unfences_it(node: QuorumNode) -> None:
    member, own_view = Member(node), MetadataPublisher(CLUSTER)
    await member.lifecycle.register(Harness().registration(1), node.publisher)
    joining = asyncio.ensure_future(member.lifecycle.join(own_view))
    await eventually_async(lambda: not member.is_fenced)
    done, _ = await asyncio.wait([joining], timeout=0.15)
    assert not done, "a Metadata response from here would list no broker"
    image = node.publisher.image
    broker = image.brokers[1]
    for offset, fenced in ((image.offset - 1, True), (image.offset, False)):
        assert not joining.done()
        record = broker_record(replace(broker, fenced=fenced), image.metadata_version)
        own_view.committed([(offset, record)], image.leader_epoch)
        await asyncio.sleep(0)
    await asyncio.wait_for(joining, PATIENCE_S)
    await member.lifecycle.shut_down()


async def test_a_heartbeat_is_retried_while_unfencing_cannot_be_written(tmp_path: Path) -> None:
    """A disk that is full has space again; the broker that gave up at its first heartbeat was stopped by it."""
    disk = FailingDisk(errno.ENOSPC)
    node = await QuorumNode(tmp_path, disk=disk).start()
    member = Member(node)
    await member.lifecycle.register(Harness().registration(1), node.publisher)
    disk.dead.add(tmp_path)
    joining = asyncio.ensure_future(member.lifecycle.join(node.publisher))
    done, _ = await asyncio.wait([joining], timeout=0.2)
    assert not done and member.is_fenced
    disk.dead.clear()
    await asyncio.wait_for(joining, PATIENCE_S)
    assert not member.is_fenced and not node.failures and not member.failures
    await member.lifecycle.shut_down()
    await node.stop()


async def test_a_fatal_refusal_of_the_controller_is_not_retried(node: QuorumNode) -> None:
    member = Member(node)
    await member.lifecycle.register(Harness().registration(1), node.publisher)
    await node.service.unregister_broker(UnregisterBrokerRequest(broker_id=1))
    with pytest.raises(ApiError) as refused:
        await member.lifecycle.join(node.publisher)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_leaving_takes_the_leaders_away_and_fences(node: QuorumNode) -> None:
    member = Member(node)
    await member.join()
    created = await node.service.create_topics(CreateTopicsRequest(topics=[wanted("t", 2)]))
    assert not created.topics[0].error_code
    await member.lifecycle.shut_down()
    topic = node.publisher.image.topic("t")
    assert topic is not None
    assert {partition.leader for partition in topic.partitions.values()} == {NO_LEADER}
    assert member.is_fenced


async def test_leaving_may_be_without_a_word(node: QuorumNode) -> None:
    member = Member(node, replace(QUICK, controlled_shutdown_enable=False))
    await member.join()
    await member.lifecycle.shut_down()
    assert not member.is_fenced, "the controller finds out by the missing heartbeats"


async def test_a_stopping_broker_waits_for_brokers_that_confirm_at_once(node: QuorumNode) -> None:
    rare = replace(QUICK, heartbeat_interval_ms=60_000)
    leaving, staying = Member(node, rare, 1), Member(node, rare, 2)
    await leaving.join()
    await staying.join()
    request = CreateTopicsRequest(topics=[wanted("t", 2, 2)])
    assert not (await node.service.create_topics(request)).topics[0].error_code
    gone = asyncio.ensure_future(leaving.lifecycle.shut_down())
    done, _ = await asyncio.wait([gone], timeout=0.3)
    assert not done, "no broker knows yet who leads"
    node.publisher.subscribe(staying.lifecycle.on_metadata)
    await asyncio.wait_for(gone, PATIENCE_S)
    assert leaving.is_fenced
    await staying.lifecycle.shut_down()


async def test_news_is_reported_before_the_next_heartbeat_is_due(node: QuorumNode) -> None:
    member = Member(node, replace(QUICK, heartbeat_interval_ms=60_000))
    await member.join()
    directory = node.publisher.image.brokers[1].directories[0]
    member.directories.append(LogDir(Path("/data"), directory, cordoned=True))
    member.lifecycle.heartbeat_now()
    await eventually_async(lambda: len(node.publisher.image.brokers[1].cordoned_directories) == 1)
    await member.lifecycle.shut_down()


async def member_with_a_failed_directory(node: QuorumNode) -> tuple[Member, UUID]:
    """A broker of which the controller knows that one of its two directories failed, and the id of the other one."""
    good, bad = UUID(int=2001), UUID(int=2002)
    member = Member(node)
    await member.lifecycle.register(Harness().registration(1, log_dirs=[good, bad]), node.publisher)
    await member.lifecycle.join(node.publisher)
    member.directories.append(LogDir(Path("/bad"), bad, error="it failed"))
    await eventually_async(lambda: node.publisher.image.brokers[1].directories == (good,))
    return member, good


async def test_changed_listeners_are_registered_without_the_failed_directory(node: QuorumNode) -> None:
    member, good = await member_with_a_failed_directory(node)
    seen: list[tuple[UUID, ...]] = []
    node.publisher.subscribe(lambda _, image: seen.append(image.brokers[1].directories))
    member.lifecycle.change_listeners([Listener(name="NEW", host="h", port=1)])
    await eventually_async(lambda: node.publisher.image.brokers[1].endpoint("NEW") is not None)
    assert set(seen) == {(good,)} and not member.is_fenced
    await member.lifecycle.shut_down()


async def test_a_broker_whose_listeners_are_refused_stays_in_the_cluster(
    node: QuorumNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(node)
    await member.join()
    refusals, heartbeats = 0, 0

    async def refuse(request: Any, response: Any) -> Any:
        nonlocal refusals, heartbeats
        if isinstance(request, BrokerRegistrationRequest):
            refusals += 1
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "not these")
        heartbeats += 1
        return await ControllerService.request(node.service, request, response)

    with monkeypatch.context() as patched:
        patched.setattr(node.service, "request", refuse)
        member.lifecycle.change_listeners([Listener(name="NEW", host="h", port=1)])
        await eventually_async(lambda: refusals > 2 and heartbeats > 2)
    await eventually_async(lambda: node.publisher.image.brokers[1].endpoint("NEW") is not None)
    await member.lifecycle.shut_down()


async def test_listeners_that_change_before_the_registration_are_in_it(node: QuorumNode) -> None:
    """A broker reads stored changes of its listeners while it starts."""
    member = Member(node)
    member.lifecycle.change_listeners([Listener(name="NEW", host="h", port=1)])
    await member.join()
    assert [each.name for each in node.publisher.image.brokers[1].endpoints] == ["NEW"]
    await member.lifecycle.shut_down()


async def test_changed_listeners_do_not_bring_back_a_removed_broker(node: QuorumNode) -> None:
    member = Member(node, replace(QUICK, heartbeat_interval_ms=60_000))
    await member.join()
    await node.service.unregister_broker(UnregisterBrokerRequest(broker_id=1))
    member.lifecycle.change_listeners([Listener(name="NEW", host="h", port=1)])
    await eventually_async(lambda: bool(member.failures))
    assert 1 not in node.publisher.image.brokers
    await member.lifecycle.shut_down()


async def test_an_incarnation_takes_over_from_the_one_before(node: QuorumNode) -> None:
    first = Member(node, replace(QUICK, heartbeat_interval_ms=60_000))
    await first.join()
    await first.lifecycle.shut_down()
    second = Member(node)
    await second.join(incarnation=1)
    assert second.lifecycle.broker_epoch > first.lifecycle.broker_epoch
    await second.lifecycle.shut_down()


@pytest.mark.parametrize("serves", [True, False])
async def test_a_late_registration_of_the_process_before_is_replaced(node: QuorumNode, serves: bool) -> None:
    member = Member(node)
    if not serves:
        member.metadata_offset = 0  # it has not caught up
    joining = asyncio.ensure_future(member.join(incarnation=1))
    await eventually_async(lambda: 1 in node.publisher.image.brokers and member.is_fenced != serves)
    before = member.lifecycle.broker_epoch
    await node.service.request(Harness().registration(1, 0), BrokerRegistrationResponse)
    await eventually_async(lambda: member.lifecycle.broker_epoch > before)
    member.metadata_offset = None
    await eventually_async(lambda: not member.is_fenced)
    await asyncio.wait_for(joining, PATIENCE_S)
    own = node.publisher.image.brokers[1]
    assert own.incarnation_id == Harness().registration(1, 1).incarnation_id and not member.failures
    assert own.broker_epoch == member.lifecycle.broker_epoch
    await member.lifecycle.shut_down()


async def test_a_broker_whose_id_another_one_has_taken_stops(node: QuorumNode) -> None:
    node.service.update_config(ControllerConfig(broker_session_timeout_ms=50))
    silent = Member(node, replace(QUICK, heartbeat_interval_ms=60_000))
    await silent.join()
    await eventually_async(lambda: silent.is_fenced)
    other = Harness().registration(1, 1, log_dirs=[UUID(int=77)])
    await node.service.request(other, BrokerRegistrationResponse)
    await eventually_async(lambda: node.publisher.image.brokers[1].incarnation_id == other.incarnation_id)
    node.service.update_config(ControllerConfig(broker_session_timeout_ms=60_000))
    silent.lifecycle.heartbeat_now()
    await eventually_async(lambda: bool(silent.failures))
    (failure,) = silent.failures
    assert isinstance(failure, ApiError) and failure.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    await silent.lifecycle.shut_down()


async def test_a_broker_that_was_removed_stops(node: QuorumNode) -> None:
    member = Member(node)
    await member.join()
    await node.service.unregister_broker(UnregisterBrokerRequest(broker_id=1))
    await eventually_async(lambda: bool(member.failures))
    (failure,) = member.failures
    assert isinstance(failure, ApiError)
    assert failure.code in (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.STALE_BROKER_EPOCH)
    await member.lifecycle.shut_down()


async def test_another_clusters_broker_is_refused_at_once(node: QuorumNode) -> None:
    member = Member(node)
    with pytest.raises(ApiError) as caught:
        await member.lifecycle.register(Harness().registration(1, cluster_id="another"), node.publisher)
    assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    await member.lifecycle.shut_down()


async def test_a_controller_that_does_not_answer_is_waited_for_so_long(tmp_path: Path) -> None:
    asleep = QuorumNode(tmp_path)
    member = Member(asleep, replace(QUICK, registration_timeout_ms=300))
    with pytest.raises(ApiError, match="no active controller") as caught:
        await member.join()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    asleep.disk.close()


async def test_a_directory_that_failed_is_reported_with_the_heartbeat(node: QuorumNode) -> None:
    member, _ = await member_with_a_failed_directory(node)
    await member.lifecycle.shut_down()
