"""Mutation quotas (KIP-599): of a request that the controller decides again, only the last attempt is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.real_io import RealClock
from odradek.common.steps import all_steps
from odradek.controller.topics import TOPICS_PER_STEP, charged
from odradek.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_partitions_response import CreatePartitionsResponse
from odradek.protocol.messages.create_topics_request import CreateTopicsRequest
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.k_raft_version_record import KRaftVersionRecord
from odradek.security.quota.ledger import Account
from odradek.server.mutation_quotas import MutationCharge
from odradek.statemachine.machine import Result, Steps
from tests.support.models.controller_harness import wanted
from tests.support.nodes.quorum_node import QuorumNode

# Decided in three steps, with more records than are replayed in one turn.
COUNT = 3 * TOPICS_PER_STEP
NAMES = [f"t{number}" for number in range(COUNT)]
TIMEOUT_MS = 60_000


def create(count: int = COUNT) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[wanted(name) for name in NAMES[:count]], timeout_ms=TIMEOUT_MS)


def grow() -> CreatePartitionsRequest:
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES]
    return CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def delete() -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=NAMES, timeout_ms=TIMEOUT_MS)


# Of each API: the request, the class of its response, and the field of that with the results.
CASES: dict[str, tuple[Callable[[], Any], type[Any], str]] = {
    "CreateTopics": (create, CreateTopicsResponse, "topics"),
    "CreatePartitions": (grow, CreatePartitionsResponse, "results"),
    "DeleteTopics": (delete, DeleteTopicsResponse, "responses"),
}


def account_of(partition_count: int) -> Account:
    """An account that is exhausted by so many partitions."""
    return Account(0.001, burst_s=partition_count * 1000, start_s=partition_count * 1000)


class Observed(MutationCharge):
    """Knows how often it has counted."""

    def __init__(self, account: Account, *, is_strict: bool = True) -> None:
        super().__init__(account, RealClock(), is_strict=is_strict)
        self.calls = 0

    def __call__(self, partition_count: int) -> None:
        self.calls += 1
        super().__call__(partition_count)


async def started(path: Path) -> QuorumNode:
    node = await QuorumNode(path).start()
    await node.add_broker(1)
    return node


@pytest.mark.parametrize("calls", [TOPICS_PER_STEP - 1, COUNT], ids=["while decided", "while replayed"])
@pytest.mark.parametrize("name", CASES)
async def test_a_request_that_is_decided_again_is_charged_once(tmp_path: Path, name: str, calls: int) -> None:
    """The log of the controller itself has appended a record meanwhile, as those of the voters."""
    request, response, results = CASES[name]
    node = await started(tmp_path)
    if name != "CreateTopics":
        await node.service.request(create(), CreateTopicsResponse)
    account = account_of(COUNT)
    charge = Observed(account)
    asked = asyncio.create_task(node.service.request(request(), response, charge=charge))
    while charge.calls < calls:  # noqa: ASYNC110 - each turn takes a step
        await asyncio.sleep(0)
    assert not asked.done()
    node.driver.append_control([KRaftVersionRecord(version=0, k_raft_version=0)])
    answer = await asked
    assert charge.calls > COUNT, "it is decided again"
    assert {each.error_code for each in getattr(answer, results)} == {ErrorCode.NONE}
    assert (account.amount, charge.throttle_ms) == (COUNT, 0)
    await node.stop()


async def test_a_request_whose_append_is_refused_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)

    def refuse(groups: Any) -> int:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    for count in (1, COUNT):
        account = account_of(count)
        charge = Observed(account)
        with monkeypatch.context() as patch:
            patch.setattr(node.driver, "append", refuse)
            with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
                await node.service.request(create(count), CreateTopicsResponse, charge=charge)
        assert (account.amount, charge.calls) == (0, count)
    answer = await node.service.request(create(), CreateTopicsResponse, charge=charge)
    assert {each.error_code for each in answer.topics} == {ErrorCode.NONE}
    assert account.amount == COUNT
    await node.stop()


async def test_a_request_that_times_out_while_it_is_decided_is_charged(tmp_path: Path) -> None:
    """It takes effect nevertheless."""
    node = await started(tmp_path)
    account = account_of(COUNT)
    charge = Observed(account)
    asked = asyncio.create_task(node.service.request(create(), CreateTopicsResponse, charge=charge))
    while not charge.calls:  # noqa: ASYNC110 - each turn takes a step
        await asyncio.sleep(0)
    assert node.service._runtime is not None and node.service._runtime._long is not None
    node.service._runtime._long.parked.time_out(1)
    with pytest.raises(ApiError, match="not committed within"):
        await asked
    again = await node.service.request(create(1), CreateTopicsResponse)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert account.amount == COUNT
    await node.stop()


def test_an_attempt_that_ends_without_a_result_is_undone() -> None:
    account = account_of(10)
    charge = Observed(account)

    def attempt(error: ApiError | None = None) -> Steps[Any, str]:
        charge(3)
        yield
        if error is not None:
            raise error
        return Result([], "done")

    left = charged(attempt(), charge)
    next(left)
    assert account.amount == 3
    left.close()
    assert account.amount == 0
    with pytest.raises(ApiError, match="POLICY_VIOLATION"):
        all_steps(charged(attempt(ApiError(ErrorCode.POLICY_VIOLATION)), charge))
    assert account.amount == 0
    assert all_steps(charged(attempt(), charge)).response == "done"
    assert account.amount == 3


@pytest.mark.parametrize("is_strict", [True, False])
def test_an_undo_leaves_the_quota_unchanged(is_strict: bool) -> None:
    account = account_of(5)
    charge = Observed(account, is_strict=is_strict)
    charge(5)
    charge.undo()
    charge.undo()
    assert (account.amount, charge.throttle_ms) == (0, 0)
    charge(3)
    charge(2)
    assert account.amount == 5
    if is_strict:
        with pytest.raises(ApiError, match="quota has been exceeded"):
            charge(1)
    assert charge.throttle_ms > 0
    charge.undo()
    assert (account.amount, charge.throttle_ms) == (0, 0)
