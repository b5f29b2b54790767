"""The AlterPartition requests for in-sync sets, and the handling of their responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.common.backoff import Backoff
from odradek.common.errors import ApiError, ErrorCode
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from odradek.replica import isr_service
from odradek.replica.isr_service import IsrService
from odradek.replica.partition import Partition
from tests.support.waiting import eventually_async, some_turns
from tests.unit.replica.test_partition import ME, Home

OWN_EPOCH = 55
Answer = Callable[[AlterPartitionRequest], AlterPartitionResponse]


class StandingClock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 5000


class Asking:
    """Three partitions, each led with one follower in sync and one that has all there is."""

    def __init__(self, directory: Path) -> None:
        self.homes = []
        for number in range(3):
            path = directory / str(number)
            path.mkdir()
            home = Home(path, (ME, 2, 3))
            home.partition.partition_id = number
            home.change(isr=(ME, 2))
            self.homes.append(home)
        self.homes[2].partition.topic_id = UUID(int=6)
        self.asked: list[AlterPartitionRequest] = []
        self.answers: list[Answer | Exception] = []
        self.service = IsrService(
            StandingClock(),
            broker_id=ME,
            broker_epoch=lambda: OWN_EPOCH,
            send=self._send,
            partitions=lambda: self.partitions,
            max_lag_ms=3_600_000,
        )

    @property
    def partitions(self) -> list[Partition]:
        return [home.partition for home in self.homes]

    async def _send(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else done
        if isinstance(answer, Exception):
            raise answer
        return answer(request)

    def want(self, *numbers: int) -> None:
        for number in numbers:
            self.homes[number].fetched(3, 0, broker_epoch=70)
            self.service.request(self.partitions[number])

    def names(self, at: int) -> list[tuple[int, int]]:
        return [
            (topic.topic_id.int, each.partition_index) for topic in self.asked[at].topics for each in topic.partitions
        ]


def answered(request: AlterPartitionRequest, **fields: Any) -> AlterPartitionResponse:
    """The controller agrees, but for what `fields` say of each partition."""
    topics = []
    for topic in request.topics:
        parts = []
        for each in topic.partitions:
            agreed: dict[str, Any] = {
                "partition_index": each.partition_index,
                "leader_epoch": each.leader_epoch,
                "isr": [member.broker_id for member in each.new_isr_with_epochs],
                "partition_epoch": each.partition_epoch + 1,
            }
            parts.append(PartitionData(**{**agreed, **fields}))
        topics.append(TopicData(topic_id=topic.topic_id, partitions=parts))
    return AlterPartitionResponse(topics=topics)


def done(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return answered(request)


def refusing(code: ErrorCode) -> Answer:
    return lambda request: answered(request, error_code=code, isr=[], partition_epoch=0)


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[Asking]:
    made = Asking(tmp_path)
    made.service.start()
    yield made
    await made.service.stop()
    for home in made.homes:
        home.disk.close()


async def test_one_request_has_all_that_is_wanted(asking: Asking) -> None:
    asking.want(0, 1, 2)
    await eventually_async(lambda: asking.partitions[2].isr == (ME, 2, 3))
    (request,) = asking.asked
    assert (request.broker_id, request.broker_epoch) == (ME, OWN_EPOCH)
    assert asking.names(0) == [(5, 0), (5, 1), (6, 2)] and len(request.topics) == 2
    part = request.topics[0].partitions[0]
    members = [(each.broker_id, each.broker_epoch) for each in part.new_isr_with_epochs]
    assert members == [(ME, OWN_EPOCH), (2, -1), (3, 70)]
    assert (part.leader_epoch, part.partition_epoch) == (0, 1)
    assert [(each.isr, each.partition_epoch) for each in asking.partitions] == [((ME, 2, 3), 2)] * 3


async def test_an_outdated_isr_change_is_not_sent(asking: Asking) -> None:
    asking.want(0, 1, 2)
    asking.homes[0].change(isr=(ME,))
    asking.homes[1].change(leader=2, leader_epoch=1)
    await eventually_async(lambda: asking.partitions[2].isr == (ME, 2, 3))
    assert asking.names(0) == [(6, 2)] and len(asking.asked) == 1


async def test_where_every_isr_change_is_outdated_nothing_is_sent(asking: Asking) -> None:
    asking.want(0)
    asking.homes[0].change(isr=(ME,))
    await eventually_async(lambda: not asking.service._wake.is_set())
    assert not asking.asked
    asking.want(2)
    await eventually_async(lambda: asking.partitions[2].isr == (ME, 2, 3))
    assert len(asking.asked) == 1


async def test_a_large_number_is_asked_for_in_several_requests(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isr_service.MAX_PARTITIONS == 5000
    monkeypatch.setattr(isr_service, "MAX_PARTITIONS", 2)
    asking.want(0, 1, 2)
    await eventually_async(lambda: asking.partitions[2].isr == (ME, 2, 3))
    assert [asking.names(at) for at in range(len(asking.asked))] == [[(5, 0), (5, 1)], [(6, 2)]]


@pytest.mark.parametrize(
    "answer",
    [
        ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer"),
        lambda request: AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        lambda request: AlterPartitionResponse(),
        refusing(ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["no answer", "refused as a whole", "nothing said of it", "no decision"],
)
async def test_an_undecided_isr_change_is_retried(asking: Asking, answer: Answer | Exception) -> None:
    asking.answers = [answer, answer]
    asking.want(0)
    await eventually_async(lambda: asking.partitions[0].isr == (ME, 2, 3))
    assert [asking.names(at) for at in range(3)] == [[(5, 0)]] * 3 and len(asking.asked) == 3


async def test_pauses_grow_until_a_change_is_decided(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(backoff: Backoff) -> None:
        pauses.append(backoff.next_ms())
        await asyncio.sleep(0)

    monkeypatch.setattr(Backoff, "sleep", sleep)
    for number, failures in enumerate((6, 1, 0)):
        asking.answers = [ApiError(ErrorCode.REQUEST_TIMED_OUT, "no answer")] * failures
        asking.want(number)
        await eventually_async(lambda number=number: asking.partitions[number].isr == (ME, 2, 3))
        await some_turns()
    assert pauses == [50, 100, 200, 400, 800, 1000, 50]


async def test_only_what_was_not_decided_is_asked_for_again(asking: Asking) -> None:
    asking.answers = [lambda request: AlterPartitionResponse(topics=answered(request).topics[:1])]
    asking.want(0, 2)
    await eventually_async(lambda: asking.partitions[2].isr == (ME, 2, 3))
    assert [asking.names(at) for at in range(2)] == [[(5, 0), (6, 2)], [(6, 2)]]


@pytest.mark.parametrize(
    ("answer", "is_pending"),
    [
        (refusing(ErrorCode.INELIGIBLE_REPLICA), False),
        (refusing(ErrorCode.INVALID_UPDATE_VERSION), True),
        (lambda request: answered(request, leader_epoch=1), True),
    ],
    ids=["refused", "overtaken", "answered by a later leadership"],
)
async def test_a_definitely_refused_isr_change_is_not_retried(
    asking: Asking, answer: Answer, is_pending: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asking.answers = [answer]
    asking.want(0)
    await eventually_async(lambda: len(asking.asked) == 1)
    asking.want(1)
    await eventually_async(lambda: asking.partitions[1].isr == (ME, 2, 3))
    assert asking.partitions[0].isr == (ME, 2)
    assert (asking.partitions[0].in_sync.pending is not None) == is_pending
    assert asking.names(1) == [(5, 1)]


async def test_a_lagging_replica_is_removed_by_an_isr_change(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    await asking.service.stop()
    asking.service.max_lag_ms = 20
    for home in asking.homes:
        home.partition.request_isr = asking.service.request
    asking.homes[0].append(b"x")
    for home in asking.homes:
        home.fetched(2, 0, now_ms=4000)
    asking.service.start()
    await eventually_async(lambda: asking.partitions[0].isr == (ME,))
    assert asking.names(0) == [(5, 0)], "who has all there is does not lag"
    (line,) = [each for each in caplog.records if each.getMessage().startswith("follower removed")]
    fields = line.__dict__["fields"]
    assert (fields["broker"], fields["reason"], fields["lag"], fields["falls"]) == (2, "stuck", 1, 1)
    assert fields["behind_for_ms"] == 5000


async def test_after_a_stop_nothing_is_asked(asking: Asking) -> None:
    await asking.service.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    asking.want(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert asking.asked == []
