"""The steps of a failback, repeated: with known steps, with changes meanwhile, with a source of another link."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.admin import link_facts
from odradek.admin import link_failbacks as steps
from odradek.admin.link_failbacks import UnfinishedError, UnknownTopicError
from odradek.admin.plan import PlanError
from odradek.client.admin import ConfigOperation
from odradek.client.groups import CommittedOffset
from odradek.common.errors import ApiError, ErrorCode

HERE_ID, THERE_ID = UUID(int=1), UUID(int=2)
LINK = {"odradek.link.back.bootstrap.servers": "there:9092"}


@dataclass
class Side:
    """A cluster: its settings, topics of one id, and the committed offsets of its groups.

    Attributes:
        loses: whether a change is made and its response lost: it is requested again, and refused.
    """

    topic_id: UUID
    settings: dict[str, str] = field(default_factory=dict)
    partitions: int = 1
    loses: bool = False
    offsets: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    timeout_ms: int = 100

    async def metadata(self, topics: list[str]) -> Any:
        found = [SimpleNamespace(partition_index=each, leader_id=1) for each in range(self.partitions)]
        code = 0 if self.partitions else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return SimpleNamespace(
            topics=[
                SimpleNamespace(name=name, error_code=code, topic_id=self.topic_id, partitions=found) for name in topics
            ]
        )


async def describe_configs(side: Side, *_: object) -> list[Any]:
    entries = [SimpleNamespace(name=key, value=text, is_sensitive=False) for key, text in side.settings.items()]
    return [SimpleNamespace(configs=entries)]


async def alter_configs(side: Side, _: object, name: str, operations: list[Any]) -> None:
    for key, operation, text in operations:
        if operation is ConfigOperation.SET:
            side.settings[key] = text
        else:
            side.settings.pop(key, None)
    if side.loses:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topic 't' is a mirror of link back already.")


async def list_offsets(side: Side, asked: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    return dict.fromkeys(asked, 0)


async def epoch_end(*_: object, **__: object) -> tuple[int, int]:
    return 3, 1


async def list_groups(side: Side) -> list[Any]:
    return [SimpleNamespace(group_id=each, group_type="classic") for each in sorted(side.offsets)]


async def committed_offsets(side: Side, group: str, *, stable: bool, only: object) -> dict[Any, CommittedOffset]:
    assert stable
    if side.waiting.get(group, 0) < 0:
        raise ApiError(ErrorCode.UNSTABLE_OFFSET_COMMIT, "a transaction is open")
    return {("t", 0): CommittedOffset(side.offsets[group])}


async def commit_offsets(side: Side, group: str, offsets: dict[Any, int]) -> None:
    """Commit an offset; an offset of a transaction that has ended meanwhile replaces it."""
    side.offsets[group] = side.waiting.pop(group, offsets["t", 0])


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> None:
    made = (describe_configs, alter_configs, list_offsets, epoch_end, list_groups, committed_offsets, commit_offsets)
    for each in made:
        monkeypatch.setattr(steps, each.__name__, each)
    monkeypatch.setattr(link_facts, "describe_configs", describe_configs)


def promoted(source_id: UUID = HERE_ID, first_epoch: int = 8, topic: str = "t") -> dict[str, str]:
    front = "odradek.link.west"
    return {
        f"{front}.mirror.{topic}": "promoted",
        f"{front}.source.id.{topic}": str(source_id),
        f"{front}.leader.epoch.{topic}": str(first_epoch),
    }


@pytest.fixture
def here() -> Side:
    return Side(HERE_ID, dict(LINK))


@pytest.fixture
def there() -> Side:
    return Side(THERE_ID, promoted())


def planned(here: Side, there: Side) -> steps.FailbackPlan:
    async def work() -> steps.FailbackPlan:
        plan, begun = await steps.known_plan(cast(Any, here), "back", ["t"])
        if begun:
            await steps.compare(cast(Any, here), cast(Any, there), plan, begun)
        return plan

    return asyncio.run(work())


def begin(here: Side, there: Side, plan: steps.FailbackPlan) -> None:
    asyncio.run(steps.begin(cast(Any, here), cast(Any, there), plan))


def state_of(here: Side) -> str | None:
    return here.settings.get("odradek.link.back.mirror.t")


def test_a_failback_begins_with_the_compared_state(here: Side, there: Side) -> None:
    plan = planned(here, there)
    assert plan.topics == ["t"]
    begin(here, there, plan)
    assert state_of(here) == "failback"
    again = planned(here, there)
    assert (again.going, again.topics, again.changes) == (["t"], ["t"], {})


@pytest.mark.parametrize("loses_all", [False, True])
def test_a_lost_response_is_detected(here: Side, there: Side, *, loses_all: bool) -> None:
    plan = planned(here, there)
    here.loses = True
    if loses_all:
        there.settings |= promoted(first_epoch=9)
        with pytest.raises(PlanError):
            begin(here, there, plan)
        assert state_of(here) is None
        return
    begin(here, there, plan)
    assert state_of(here) == "failback"


def test_a_failback_that_has_ended_is_done(here: Side, there: Side) -> None:
    """The answer to the last step was lost, and the command is given again."""
    begin(here, there, planned(here, there))
    here.settings["odradek.link.back.mirror.t"] = "active"
    again = planned(here, there)
    assert (again.done, again.topics) == (["t"], [])
    del here.settings["odradek.link.back.agreed.below.t"]
    with pytest.raises(PlanError, match="is a mirror of link back already"):
        planned(here, there)


@pytest.mark.parametrize("change", ["epoch", "id", "of another", "gone"])
def test_a_failback_does_not_begin_after_a_change_of_the_source(here: Side, there: Side, change: str) -> None:
    plan = planned(here, there)
    if change == "epoch":
        there.settings |= promoted(first_epoch=9)
    elif change == "id":
        there.topic_id = UUID(int=3)
    elif change == "of another":
        there.settings |= promoted(source_id=UUID(int=3))
    else:
        there.partitions = 0
    with pytest.raises(UnknownTopicError if change == "gone" else PlanError):
        begin(here, there, plan)
    assert state_of(here) is None


def test_a_topic_goes_back_to_the_one_that_was_promoted_from_it(here: Side, there: Side) -> None:
    """It was a mirror with a prefix there."""
    there.settings = promoted(topic="west.t") | promoted(UUID(int=3), topic="t")
    plan = planned(here, there)
    key = "odradek.link.back.source.topic.t"
    assert (plan.changes[key], plan.sources) == ("west.t", {"t": "west.t"})
    begin(here, there, plan)
    again = planned(here, there)
    assert (again.going, again.sources) == (["t"], {"t": "west.t"})
    asyncio.run(steps.check_source(cast(Any, here), cast(Any, there), again))
    there.settings["odradek.link.west.mirror.west.t"] = "failback"
    with pytest.raises(UnfinishedError, match=r"west\.t at there:9092 is not a topic of its own"):
        asyncio.run(steps.check_source(cast(Any, here), cast(Any, there), again))


def test_a_source_name_of_an_earlier_failback_is_deleted(here: Side, there: Side) -> None:
    here.settings |= promoted(THERE_ID) | {"odradek.link.back.source.topic.t": "west.t"}
    assert planned(here, there).changes["odradek.link.back.source.topic.t"] is None
    del here.settings["odradek.link.back.source.topic.t"]
    assert "odradek.link.back.source.topic.t" not in planned(here, there).changes


def test_a_topic_that_was_promoted_twice_has_no_way_back(here: Side, there: Side) -> None:
    there.settings = promoted(topic="west.t") | promoted(topic="copy.t")
    with pytest.raises(PlanError, match=r"promoted at there:9092 as copy\.t, west\.t"):
        planned(here, there)
    there.settings |= promoted()
    assert planned(here, there).sources == {"t": "t"}, "one of them has the name that the link gives it"


@pytest.mark.parametrize("source_id", [THERE_ID, UUID(int=3)])
def test_a_topic_with_records_of_another_source_is_refused(here: Side, there: Side, source_id: UUID) -> None:
    """Its epochs from 5 on are of that one's elections, and the source may have given the same numbers to others."""
    front = "odradek.link.third"
    here.settings |= {f"{front}.mirror.t": "promoted", f"{front}.source.id.t": str(source_id)}
    here.settings |= {f"{front}.leader.epoch.t": "9", f"{front}.agreed.below.t": "5"}
    if source_id == THERE_ID:
        assert planned(here, there).topics == ["t"], "another link to the same source"
        return
    with pytest.raises(PlanError, match="failed back by link third before"):
        planned(here, there)


@pytest.mark.parametrize("is_own", [True, False])
def test_clusters_that_fail_back_to_each_other_are_refused(here: Side, there: Side, *, is_own: bool) -> None:
    plan = planned(here, there)
    begin(here, there, plan)
    if not is_own:
        there.settings["odradek.link.west.mirror.t"] = "failback"
    check = steps.check_source(cast(Any, here), cast(Any, there), plan)
    if is_own:
        asyncio.run(check)
        return
    with pytest.raises(UnfinishedError, match="links failover back t"):
        asyncio.run(check)


def move(here: Side, cut: int = 8) -> list[tuple[str, int]]:
    rows = asyncio.run(steps.move_groups(cast(Any, here), {("t", 0): cut}))
    return [(row["group"], row["offset"]) for row in rows]


def test_offsets_that_a_transaction_commits_late_are_reset_too(here: Side) -> None:
    here.offsets, here.waiting = {"a": 9, "b": 8}, {"a": 12}
    assert move(here) == [("a", 9), ("a", 12)]
    assert here.offsets == {"a": 8, "b": 8}


def test_a_client_that_always_commits_beyond_the_cut_is_named(here: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ignored(*_: object) -> None:
        """Its client, which is no member, commits its old position at once."""

    monkeypatch.setattr(steps, "commit_offsets", ignored)
    here.offsets = {"a": 9, "b": 8}
    with pytest.raises(UnfinishedError, match="outside of groups: a"):
        move(here)


def test_an_open_transaction_of_a_group_is_named(here: Side) -> None:
    here.offsets, here.waiting = {"a": 5}, {"a": -1}
    with pytest.raises(UnfinishedError, match="offsets of group a"):
        move(here)
