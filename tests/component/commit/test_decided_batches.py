"""A batch that an earlier run or a task has decided, against a broker that a test plays, and its commit's reads."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, LeaseError, OptionError
from pyspark_odradek.micro_batch.staging import Staging
from pyspark_odradek.standby.batches import Span, batch_span
from pyspark_odradek.standby.commit import current_lease
from pyspark_odradek.topic_sink.marker_topic import Marker
from pyspark_odradek.topic_sink.transaction import Session, TransactionalCommit, Work
from tests.component.commit.conftest import TOPIC, PlayedCluster
from tests.component.commit.test_commit_answers import FIRST, LEASE, QUERY, WHOLE, held, waited, work
from tests.support.sleeps import without_sleep

EMPTY = Work(5, "run", frozenset(), list, "plan")
BEGUN = ["INIT_PRODUCER_ID", "OFFSET_FETCH"]


class Ending(TransactionalCommit):
    """Its tasks' transactions end, after failures that pass."""

    def __init__(self, played: PlayedCluster, failures: int = 0) -> None:
        super().__init__(played.connected(), QUERY)
        self.ended: list[Marker] = []
        self.settled_run_ids: list[str] = []
        self._failures = failures

    def end_tasks(self, session: Session, found: Marker, deadline: float) -> None:
        self.ended.append(found)
        self.settled_run_ids.append(session.settled_run_id)
        if len(self.ended) <= self._failures:
            raise OSError("the broker is gone")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_batch_that_a_task_has_found_must_be_there(played: PlayedCluster, is_there: bool) -> None:
    committing = TransactionalCommit(played.connected(), QUERY)
    assert committing.commit(work(4))
    before = len(played.steps())
    played.offsets = [[(TOPIC, 0, 5, "older plan")] if is_there else []]
    found = work(5)._replace(is_known=True)
    if is_there:
        assert committing.commit(found) is False
    else:
        with pytest.raises(ClusterError, match="a task has found batch 5 in the sink, and its marker is not there"):
            committing.commit(found)
    assert played.steps()[before:] == ["END_TXN", *BEGUN], "what this process holds does not say"


@pytest.mark.parametrize(
    ("metadata", "is_ended"),
    [("older plan tasks", True), ("older plan", False), ("older - before=x", False)],
    ids=["by tasks", "by the driver", "with runs before"],
)
def test_an_empty_batch_ends_one_of_its_number_that_tasks_have_written(
    played: PlayedCluster, metadata: str, is_ended: bool
) -> None:
    played.offsets = [[(TOPIC, 0, 5, metadata)]]
    committing = Ending(played)
    for _ in range(2):
        committing.skip_empty(EMPTY)
    assert played.steps() == ["OFFSET_FETCH", *(BEGUN if is_ended else [])], "it is looked for once"
    assert [(each.batch_id, each.run_id) for each in committing.ended] == [(5, "older")] * is_ended
    assert committing.settled_run_ids == ["older"] * is_ended
    assert committing.commit(work(6))
    assert played.steps()[-len(WHOLE) + 2 :] == WHOLE[2:]
    assert len(played.asked(ApiKey.INIT_PRODUCER_ID)) == 1


@pytest.mark.parametrize("found", [[], [(TOPIC, 0, 4, "older plan tasks")]], ids=["none", "another number"])
def test_an_empty_batch_leaves_what_is_decided_of_others(
    played: PlayedCluster, found: list[tuple[str, int, int, str]]
) -> None:
    played.offsets = [found]
    committing = Ending(played)
    committing.skip_empty(EMPTY)
    committing.skip_empty(EMPTY._replace(batch_id=None))
    assert played.steps() == ["OFFSET_FETCH"] and not committing.ended


def test_an_empty_batch_begins_if_an_open_transaction_may_hold_its_marker(played: PlayedCluster) -> None:
    played.codes[ApiKey.OFFSET_FETCH] = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 5
    committing = Ending(played)
    committing.skip_empty(EMPTY)
    assert played.steps() == ["OFFSET_FETCH"] * 6 + BEGUN and not committing.ended
    before = len(played.steps())
    assert committing.commit(work(6))
    assert played.steps()[before:] == WHOLE[2:], "the session is settled"
    before = len(played.steps())
    committing.skip_empty(EMPTY._replace(batch_id=7))
    assert len(played.steps()) == before, "a process that has committed has missed no batch"


def test_a_decided_batch_is_ended_again_after_a_failure(played: PlayedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    without_sleep(monkeypatch)
    played.offsets = [[(TOPIC, 0, 5, "older plan tasks")]]
    committing = Ending(played, failures=1)
    assert committing.commit(work(5)) is False
    assert len(committing.ended) == 2 and "PRODUCE" not in played.steps()


def test_a_batch_that_tasks_have_written_is_ended_once_it_is_marked(played: PlayedCluster) -> None:
    committing = Ending(played)
    before_ms = time.time_ns() // 1_000_000
    assert committing.commit(work(5)._replace(tasks=(), batches=list))
    assert before_ms <= committing.ended[0].decided_ms <= time.time_ns() // 1_000_000
    assert [(each.batch_id, each.run_id, each.tasks) for each in committing.ended] == [(5, "run", ())]
    assert committing.commit(work(6))
    assert len(committing.ended) == 1, "the driver has written this one"


def test_a_decided_batch_whose_end_is_refused_is_not_written_again(played: PlayedCluster) -> None:
    """The session begins again, and looks for the marker."""
    committing = Ending(played)
    assert committing.commit(work(4))
    played.offsets = [[(TOPIC, 0, 5, "older plan tasks")]]
    with pytest.raises(ClusterError, match="was written by tasks"):
        TransactionalCommit(played.connected(), QUERY).commit(work(5)._replace(is_known=True))
    before = len(played.steps())
    assert committing.commit(work(5)) is False
    assert "PRODUCE" not in played.steps()[before:] and len(committing.ended) == 1


def test_a_process_that_has_committed_looks_for_no_decided_batch(played: PlayedCluster) -> None:
    committing = Ending(played)
    assert committing.commit(work(4))
    before = len(played.steps())
    committing.skip_empty(EMPTY)
    assert len(played.steps()) == before


def test_a_driver_without_tasks_cannot_end_a_batch_of_tasks(played: PlayedCluster) -> None:
    played.offsets = [[(TOPIC, 0, 5, "older plan tasks")]]
    with pytest.raises(ClusterError, match="batch 5 was written by tasks, and not by this driver"):
        TransactionalCommit(played.connected(), QUERY).commit(work(5))


def test_a_batch_query_without_rows_ends_its_transaction_alone(played: PlayedCluster) -> None:
    assert TransactionalCommit(played.connected(), QUERY).commit(EMPTY._replace(batch_id=None))
    assert played.steps() == ["INIT_PRODUCER_ID", "END_TXN"]


@pytest.mark.parametrize("value", ["a week", None], ids=["no number", "refused"])
def test_without_a_known_retention_of_offsets_nothing_is_warned_of(
    played: PlayedCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, value: str | None
) -> None:
    configs = [DescribeConfigsResourceResult(name="offsets.retention.minutes", value=value)]
    code = ErrorCode.NONE if value else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    result = DescribeConfigsResult(error_code=code, resource_name="1", configs=configs)
    played.peer.on(ApiKey.DESCRIBE_CONFIGS, lambda *_: DescribeConfigsResponse(results=[result]))
    write_plan(tmp_path, 0, 'v1\n{"batchTimestampMs": 1}\n')
    assert TransactionalCommit(played.connected(), QUERY, checkpoint=str(tmp_path)).commit(work(0))
    assert "no marker of this query" not in caplog.text
    assert [step for step in played.steps() if step != "DESCRIBE_CONFIGS"] == FIRST


def test_offsets_that_are_no_gate_are_reported(played: PlayedCluster) -> None:
    cluster = played.connected()
    assert current_lease(cluster, LEASE) is None
    played.offsets = [held("b", 7)]
    found = current_lease(cluster, LEASE)
    assert found is not None and (found.group, found.covered) == ("b", {(TOPIC, 0): 7})
    assert waited(played) == [False, False], "a transfer in progress is not waited for"
    played.offsets = [[(TOPIC, 0, 1, "x")]]
    with pytest.raises(LeaseError, match="is not a gate"):
        current_lease(cluster, LEASE)


# -- files of a query --------------------------------------------------------------------------------------------------


def write_plan(root: Path, number: int, text: str) -> None:
    (root / "offsets").mkdir(exist_ok=True)
    (root / "offsets" / str(number)).write_text(text)


def test_the_offsets_of_a_batch_begin_where_the_batch_before_ends(tmp_path: Path) -> None:
    for number in range(3):
        write_plan(tmp_path, number, f'v1\n{{}}\n{{"in": {{"0": {number * 10}}}}}')
    part = TopicPartition("in", 0)
    assert batch_span(str(tmp_path), 0) == Span(None, {part: 0})
    assert batch_span(str(tmp_path), 1) == Span({part: 0}, {part: 10})
    assert batch_span(str(tmp_path), 2) == Span({part: 10}, {part: 20})
    with pytest.raises(OptionError, match="gate: the offsets of batch 3 cannot be read in "):
        batch_span(str(tmp_path), 3)


def test_only_an_empty_folder_of_this_machine_is_removed(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path))
    staging.create("full", "x").close()
    (tmp_path / "empty").mkdir()
    for folder in ("full", "empty", "none"):
        staging.remove_empty(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert len(list((tmp_path / "full").iterdir())) == 1
