"""The commit of a batch and of a lease against a broker that a test plays: the result of each answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record
from pyspark_odradek.client.offsets import TopicPartition
from pyspark_odradek.errors import ClusterError, FencedError, LeaseError, OptionError
from pyspark_odradek.record.encode import EncodedBatch
from pyspark_odradek.standby import commit as lease_commit
from pyspark_odradek.standby.batches import Span
from pyspark_odradek.standby.commit import LeasedCommit, create_lease
from pyspark_odradek.topic_sink import transaction
from pyspark_odradek.topic_sink.transaction import TransactionalCommit, Work
from tests.component.commit.conftest import PRODUCER, TOPIC, PlayedCluster
from tests.support.sleeps import without_sleep

QUERY = "query"
PARTITION = TopicPartition(TOPIC, 0)
WHOLE = [
    "INIT_PRODUCER_ID",
    "OFFSET_FETCH",
    "ADD_PARTITIONS_TO_TXN",
    "PRODUCE",
    "ADD_OFFSETS_TO_TXN",
    "TXN_OFFSET_COMMIT",
    "END_TXN",
]
FIRST = ["OFFSET_FETCH", *WHOLE]


def work(batch_id: int | None = 0, run_id: str = "run") -> Work:
    batch = EncodedBatch(TOPIC, 0, 1, build_batch([Record(None, b"v", (), timestamp_ms=1)]))
    return Work(batch_id, run_id, frozenset([PARTITION]), lambda: [batch], "plan")


def test_a_batch_takes_all_steps_and_the_next_one_those_behind_the_marker(played: PlayedCluster) -> None:
    committing = TransactionalCommit(played.connected(), QUERY, transaction_timeout_ms=1234)
    assert committing.commit(work(0))
    assert played.steps() == FIRST
    assert committing.commit(work(1))
    assert played.steps() == FIRST + WHOLE[2:]
    (began,) = played.asked(ApiKey.INIT_PRODUCER_ID)
    assert (began.transactional_id, began.transaction_timeout_ms, began.producer_id) == (QUERY, 1234, -1)
    for request in played.asked(ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN):
        assert (request.producer_id, request.producer_epoch) == PRODUCER
    for request in played.asked(ApiKey.ADD_PARTITIONS_TO_TXN):
        assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == PRODUCER
    marked = [each.topics[0].partitions[0] for each in played.asked(ApiKey.TXN_OFFSET_COMMIT)]
    assert [(each.committed_offset, each.committed_metadata) for each in marked] == [(0, "run plan"), (1, "run plan")]
    assert [each.committed for each in played.asked(ApiKey.END_TXN)] == [True, True]


@pytest.mark.parametrize("written", [False, True], ids=["written", "was there"])
def test_the_batch_behind_one_that_is_there_is_written_at_once(played: PlayedCluster, written: bool) -> None:
    played.offsets = [[(TOPIC, 0, 5, "older plan")] if written else []]
    committing = TransactionalCommit(played.connected(), QUERY)
    assert committing.commit(work(5)) is not written
    before = len(played.steps())
    assert committing.commit(work(6))
    assert played.steps()[before:] == WHOLE[2:]
    played.codes[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.INVALID_TXN_STATE]
    before = len(played.steps())
    assert committing.commit(work(7))
    assert played.steps()[before:] == ["ADD_PARTITIONS_TO_TXN", "END_TXN", *WHOLE]


@pytest.mark.parametrize(
    ("kept_min", "planned_before_min", "warned"),
    [("1", 2, True), ("10080", 2, False), ("0", 2, False), ("1", 0, False), (None, 2, False)],
)
def test_a_marker_that_may_have_expired_is_warned_of_once(
    played: PlayedCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    kept_min: str | None,
    planned_before_min: int,
    warned: bool,
) -> None:
    configs = [DescribeConfigsResourceResult(name="offsets.retention.minutes", value=kept_min)] if kept_min else []
    answer = DescribeConfigsResponse(results=[DescribeConfigsResult(resource_name="1", configs=configs)])
    played.peer.on(ApiKey.DESCRIBE_CONFIGS, lambda *_: answer)
    (tmp_path / "offsets").mkdir()
    for batch_id in range(2):
        planned_ms = int(time.time() * 1000) - planned_before_min * 60_000
        (tmp_path / "offsets" / str(batch_id)).write_text(f'v1\n{{"batchTimestampMs": {planned_ms}}}\n')
    committing = TransactionalCommit(played.connected(), QUERY, checkpoint=str(tmp_path))
    assert committing.commit(work(0))
    played.codes[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.INVALID_TXN_STATE]  # the marker is looked for again
    assert committing.commit(work(1))
    warnings = [each.getMessage() for each in caplog.records if "no marker of this query" in each.getMessage()]
    assert len(warnings) == warned
    assert all(each.startswith("batch 0 was planned at ") and "option markerTopic" in each for each in warnings)


def test_a_new_epoch_of_the_producer_begins_with_sequence_0(played: PlayedCluster) -> None:
    committing = TransactionalCommit(played.connected(), QUERY)
    played.codes[ApiKey.END_TXN] = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
    for batch_id in range(3):
        assert committing.commit(work(batch_id))
    sent = [each.topic_data[0].partition_data[0].records for each in played.asked(ApiKey.PRODUCE)]
    assert [BatchHeader.read(bytes(each)).base_sequence for each in sent] == [0, 1, 2, 0]


def test_a_transaction_times_out_after_a_minute_by_default(played: PlayedCluster) -> None:
    assert TransactionalCommit(played.connected(), QUERY).commit(work())
    played.offsets = [held(GROUP, 0)]
    assert leased(played).commit(work())
    assert [each.transaction_timeout_ms for each in played.asked(ApiKey.INIT_PRODUCER_ID)] == [60_000, 60_000]


LOST = [
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.TRANSACTION_ABORTABLE,
]
STEPS = [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]


@pytest.mark.parametrize(
    ("step", "code"), [(step, LOST[(number + shift) % 6]) for number, step in enumerate(STEPS) for shift in (0, 3)]
)
def test_a_transaction_that_is_lost_begins_again(played: PlayedCluster, step: ApiKey, code: ErrorCode) -> None:
    played.codes[step] = [code]
    assert TransactionalCommit(played.connected(), QUERY).commit(work())
    assert played.steps() == [*FIRST[: FIRST.index(step.name) + 1], "END_TXN", *WHOLE]
    assert [each.committed for each in played.asked(ApiKey.END_TXN)][-2:] == [False, True]
    again = played.asked(ApiKey.INIT_PRODUCER_ID)[-1]
    assert (again.producer_id, again.producer_epoch) == PRODUCER


@pytest.mark.parametrize(
    ("step", "code", "says"),
    [
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "InitProducerId for query: TRANS"),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.INVALID_TRANSACTION_TIMEOUT, "is above the cluster's transaction.max"),
        (ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED, "coordinator of group query: GROUP_AUTH"),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "AddPartitionsToTxn for t: TOPIC_AUTH"),
        (ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, "t-0 were refused: MESSAGE_TOO_LARGE; lower the option"),
        (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.GROUP_AUTHORIZATION_FAILED, "AddOffsetsToTxn: GROUP_AUTHORIZATION"),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.OFFSET_METADATA_TOO_LARGE, "TxnOffsetCommit for t: OFFSET_METADATA"),
        (ApiKey.END_TXN, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "EndTxn: TRANSACTIONAL_ID_AUTH"),
        (ApiKey.OFFSET_FETCH, ErrorCode.GROUP_AUTHORIZATION_FAILED, "OffsetFetch of group query: GROUP_AUTH"),
    ],
)
def test_a_fatal_error_is_reported_and_the_transaction_aborted(
    played: PlayedCluster, step: ApiKey, code: ErrorCode, says: str
) -> None:
    played.codes[step] = [code]
    with pytest.raises(ClusterError, match=says):
        TransactionalCommit(played.connected(), QUERY).commit(work())
    is_open = step in (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.PRODUCE,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    )
    ends = [each.committed for each in played.asked(ApiKey.END_TXN)]
    assert ends == ([False] if is_open else [True] if step is ApiKey.END_TXN else [])


@pytest.mark.parametrize("step", [ApiKey.INIT_PRODUCER_ID, *STEPS[:2], ApiKey.END_TXN])
def test_the_end_of_the_transaction_before_is_waited_for(
    played: PlayedCluster, step: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.codes[step] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    slept = without_sleep(monkeypatch)
    assert TransactionalCommit(played.connected(), QUERY).commit(work())
    assert slept == [0.005] * 3
    at = FIRST.index(step.name)
    assert played.steps() == [*FIRST[:at], *[step.name] * 3, *FIRST[at:]]
    assert len(played.asked(ApiKey.FIND_COORDINATOR)) == 2, "the group's and the transaction's, once each"


@pytest.mark.parametrize("step", [ApiKey.INIT_PRODUCER_ID, *STEPS])
def test_patience_is_default_api_timeout_ms(played: PlayedCluster, step: ApiKey) -> None:
    committing = TransactionalCommit(played.connected(default_api_timeout_ms="1"), QUERY)
    played.codes[step] = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(ClusterError, match=r"batch 0 could not be committed in 0\.001 s .*COORDINATOR_NOT_AVAILABLE"):
        committing.commit(work())


@pytest.mark.parametrize("step", [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN])
def test_the_end_of_the_transaction_before_is_waited_for_only_so_long(played: PlayedCluster, step: ApiKey) -> None:
    played.codes[step] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 200
    with pytest.raises(ClusterError, match="the transaction before does not end"):
        TransactionalCommit(played.connected(default_api_timeout_ms="1"), QUERY).commit(work())


@pytest.mark.parametrize(
    ("answers", "patience_ms", "ends_sent"), [(1, 60_000, range(2, 3)), (200, 1, range(1, 100))], ids=["soon", "never"]
)
def test_the_abort_of_a_refused_batch_waits_a_short_time(
    played: PlayedCluster, monkeypatch: pytest.MonkeyPatch, answers: int, patience_ms: int, ends_sent: range
) -> None:
    """It goes over a new connection. Without it consumers would wait for the timeout of the transaction."""
    monkeypatch.setattr(transaction, "LAST_BACKOFF_MS", patience_ms)
    played.codes[ApiKey.PRODUCE] = [ErrorCode.MESSAGE_TOO_LARGE]
    played.codes[ApiKey.END_TXN] = [ErrorCode.CONCURRENT_TRANSACTIONS] * answers
    with pytest.raises(ClusterError, match="MESSAGE_TOO_LARGE"):
        TransactionalCommit(played.connected(), QUERY).commit(work())
    ends = [each.committed for each in played.asked(ApiKey.END_TXN)]
    assert set(ends) == {False} and len(ends) in ends_sent
    assert [each.key_type for each in played.asked(ApiKey.FIND_COORDINATOR)] == [0, 1, 1]


def test_operations_not_attempted_do_not_hide_a_lost_transaction(played: PlayedCluster) -> None:
    """A coordinator that refuses one partition answers for the others that they were not attempted."""
    answers = [(ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.PRODUCER_FENCED), (ErrorCode.NONE, ErrorCode.NONE)]

    def answer(request: Any, version: int) -> AddPartitionsToTxnResponse:
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in enumerate(answers.pop(0))
        ]
        topic = AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=results)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])

    played.peer.on(ApiKey.ADD_PARTITIONS_TO_TXN, answer)
    assert TransactionalCommit(played.connected(), QUERY).commit(work())
    assert answers == [] and len(played.asked(ApiKey.INIT_PRODUCER_ID)) == 2


def test_a_failure_that_passes_is_tried_again_while_there_is_time(
    played: PlayedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.codes[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.NOT_COORDINATOR] * 2
    slept = without_sleep(monkeypatch)
    assert TransactionalCommit(played.connected(), QUERY).commit(work())
    assert played.steps() == ["OFFSET_FETCH", "INIT_PRODUCER_ID"] * 2 + FIRST
    assert len(played.asked(ApiKey.FIND_COORDINATOR)) == 2 * 3, "both coordinators are looked for again"
    assert slept == [0.05, 0.1]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_query_that_the_coordinator_has_forgotten_begins_as_new(played: PlayedCluster, code: ErrorCode) -> None:
    played.codes[ApiKey.END_TXN] = [ErrorCode.INVALID_TXN_STATE]
    played.codes[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.NONE, code]
    assert TransactionalCommit(played.connected(), QUERY).commit(work())
    assert [each.producer_id for each in played.asked(ApiKey.INIT_PRODUCER_ID)] == [-1, PRODUCER[0], -1]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize(
    ("timeout_ms", "holder", "is_fenced"), [(60_000, "", True), (1, "other", True), (1, "run", False)]
)
def test_a_writer_that_is_fenced_goes_on_where_its_transaction_timed_out(
    played: PlayedCluster, code: ErrorCode, timeout_ms: int, holder: str, is_fenced: bool
) -> None:
    played.codes[ApiKey.END_TXN] = [ErrorCode.INVALID_TXN_STATE]
    played.codes[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.NONE, code]
    played.offsets = [[], [], [(TOPIC, 0, 0, holder)] if holder else [], []]
    committing = TransactionalCommit(played.connected(), QUERY, transaction_timeout_ms=timeout_ms)
    if is_fenced:
        with pytest.raises(FencedError, match="another run of this query has taken over"):
            committing.commit(work())
    else:
        assert committing.commit(work())
        assert played.asked(ApiKey.INIT_PRODUCER_ID)[-1].producer_id == -1


@pytest.mark.parametrize(
    ("found", "written", "fenced"),
    [
        ([(TOPIC, 0, 4, "run plan")], True, ""),
        ([(TOPIC, 0, 5, "older plan")], False, ""),
        ([(TOPIC, 0, 3, "older x"), (TOPIC, 1, 5, "older plan"), (TOPIC, 2, -1, "")], False, ""),
        ([(TOPIC, 0, 6, "other plan")], None, "the sink has batch 6 of this query already"),
        ([(TOPIC, 0, 5, "other another")], None, "which was planned otherwise"),
    ],
    ids=["an earlier batch", "this batch", "the newest counts", "a later batch", "another batch of this number"],
)
def test_the_marker_says_whether_a_batch_is_there(
    played: PlayedCluster, found: list[tuple[str, int, int, str]], written: bool | None, fenced: str
) -> None:
    played.offsets = [found]
    committing = TransactionalCommit(played.connected(), QUERY)
    if fenced:
        with pytest.raises(FencedError, match=fenced):
            committing.commit(work(5))
        assert played.steps() == ["OFFSET_FETCH"], "it ends before it fences a healthy one"
    else:
        assert committing.commit(work(5)) is written
        assert ("PRODUCE" in played.steps()) is written


@pytest.mark.parametrize(
    ("entries", "batch_id"),
    [([], None), ([-1], None), ([-1, 0], 0), ([0, -1], 0), ([3, 5, 4], 5)],
    ids=["none", "expired", "behind an expired one", "before one", "the newest"],
)
def test_an_offset_that_is_not_there_is_no_marker(
    played: PlayedCluster, entries: list[int], batch_id: int | None
) -> None:
    played.offsets = [[(TOPIC, number, offset, "run plan") for number, offset in enumerate(entries)]]
    found = TransactionalCommit(played.connected(), QUERY).marker()
    assert (None if found is None else found.batch_id) == batch_id


@pytest.mark.parametrize(("unstable", "stable_asked"), [(2, [True] * 3), (5, [True] * 5 + [False])])
def test_a_marker_on_its_way_is_waited_for_but_not_one_of_a_dead_driver(
    played: PlayedCluster, unstable: int, stable_asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    played.codes[ApiKey.OFFSET_FETCH] = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * unstable
    slept = without_sleep(monkeypatch)
    assert TransactionalCommit(played.connected(), QUERY).commit(work())
    assert [each.require_stable for each in played.asked(ApiKey.OFFSET_FETCH)] == [*stable_asked, True]
    assert slept == [0.05] * unstable


@pytest.mark.parametrize(
    ("found", "run_id", "plan", "metadata"),
    [
        ([], "b", "", "b"),
        ([(TOPIC, 0, 4, "a")], "b", "", "b - before=a"),
        ([(TOPIC, 0, 4, "e x before=d,c,b,a")], "f", "plan", "f plan before=e,d,c,b"),
        ([(TOPIC, 0, 4, "f x before=e,d,c,b")], "f", "plan", "f plan before=e,d,c,b"),
    ],
    ids=["the first run", "the second", "the newest four", "the same run"],
)
def test_a_marker_has_the_runs_before_for_which_it_ends(
    played: PlayedCluster, found: list[tuple[str, int, int, str]], run_id: str, plan: str, metadata: str
) -> None:
    """It is an offset of the first partition that the batch writes to, by name."""
    played.offsets = [found]
    parts = frozenset(TopicPartition(topic, 0) for topic in ("u", "s", TOPIC))
    assert TransactionalCommit(played.connected(), QUERY).commit(work(5, run_id)._replace(plan=plan, partitions=parts))
    (marked,) = [each.topics[0] for each in played.asked(ApiKey.TXN_OFFSET_COMMIT)]
    assert (marked.name, marked.partitions[0].committed_offset) == ("s", 5)
    assert marked.partitions[0].committed_metadata == metadata


def test_a_run_that_is_overtaken_while_it_begins_writes_nothing(played: PlayedCluster) -> None:
    played.offsets = [[], [(TOPIC, 0, 4, "newer - before=older,run")]]
    with pytest.raises(FencedError, match="another run of this query has taken over its sink, and has written batch 4"):
        TransactionalCommit(played.connected(), QUERY).commit(work(5))
    assert played.steps() == FIRST[:3]


@pytest.mark.parametrize(
    ("first", "second", "begins_again"),
    [
        ((0, "run"), (0, "run"), False),
        ((0, "run"), (1, "run"), False),
        ((0, "run"), (2, "run"), True),
        ((0, "run"), (1, "other"), True),
        ((None, "run"), (None, "run"), True),
    ],
    ids=["the same", "the next", "one was missed", "another run", "no stream"],
)
def test_a_process_goes_on_where_it_has_missed_no_batch(
    played: PlayedCluster, first: tuple[int | None, str], second: tuple[int | None, str], begins_again: bool
) -> None:
    cluster = played.connected()
    assert TransactionalCommit(cluster, QUERY).commit(work(*first))
    assert TransactionalCommit(cluster, QUERY).commit(work(*second))
    assert len(played.asked(ApiKey.INIT_PRODUCER_ID)) == 1 + begins_again


# -- under a lease -----------------------------------------------------------------------------------------------------

LEASE, GROUP = "lease", "a"
SPAN = Span({PARTITION: 0}, {PARTITION: 10})


def held(group: str, covered: int, run_id: str = "run", epoch: int = 0) -> list[tuple[str, int, int, str]]:
    return [(TOPIC, 0, covered, f'{{"group":"{group}","turn":{epoch},"run":"{run_id}"}}')]


def waited(played: PlayedCluster) -> list[bool]:
    """The `require_stable` of each OffsetFetch: whether it waits for open transactions that may change the offsets."""
    return [each.require_stable for each in played.asked(ApiKey.OFFSET_FETCH)]


def leased(played: PlayedCluster, span: Span = SPAN, **settings: str) -> LeasedCommit:
    return LeasedCommit(played.connected(**settings), LEASE, GROUP, span)


def test_a_batch_moves_the_lease_and_the_next_one_goes_on_from_there(played: PlayedCluster) -> None:
    played.offsets = [held(GROUP, 0, "")]
    cluster = played.connected()
    assert LeasedCommit(cluster, LEASE, GROUP, SPAN).commit(work(0))
    assert played.steps() == FIRST
    assert waited(played) == [False, True], "a holder that is about to write looks once more"
    assert LeasedCommit(cluster, LEASE, GROUP, Span({PARTITION: 10}, {PARTITION: 20})).commit(work(1))
    assert played.steps() == FIRST + WHOLE[2:], "no other can have moved it"
    moved = [each.topics[0].partitions[0] for each in played.asked(ApiKey.TXN_OFFSET_COMMIT)]
    assert [(each.committed_offset, each.committed_metadata) for each in moved] == [
        (offset, '{"group":"a","turn":0,"run":"run"}') for offset in (10, 20)
    ]


@pytest.mark.parametrize(
    ("first", "second", "written"),
    [(held(GROUP, 10), None, False), (held(GROUP, 0), held(GROUP, 10), False), (held(GROUP, 0), held(GROUP, 0), True)],
    ids=["covered", "covered meanwhile", "not covered"],
)
def test_a_covered_batch_is_not_written(
    played: PlayedCluster,
    first: list[tuple[str, int, int, str]],
    second: list[tuple[str, int, int, str]] | None,
    written: bool,
) -> None:
    played.offsets = [first, second or first]
    assert leased(played).commit(work()) is written
    assert ("PRODUCE" in played.steps()) is written
    assert ("INIT_PRODUCER_ID" in played.steps()) is (second is not None)


@pytest.mark.parametrize(("first_s", "every_s", "lines"), [(1000.0, 1000.0, 0), (0.0, 1000.0, 1), (0.0, 0.0, 3)])
def test_a_wait_for_another_group_is_logged_now_and_then(
    played: PlayedCluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    first_s: float,
    every_s: float,
    lines: int,
) -> None:
    monkeypatch.setattr(lease_commit, "FIRST_LOG_S", first_s)
    monkeypatch.setattr(lease_commit, "LOG_EVERY_S", every_s)
    played.offsets = [*[held("b", 0)] * 3, held("b", 10)]
    slept = without_sleep(monkeypatch)
    with caplog.at_level(logging.WARNING, "pyspark_odradek"):
        assert leased(played).commit(work(3)) is False
    assert played.steps() == ["OFFSET_FETCH"] * 4 and slept == [0.05] * 3
    assert caplog.messages == ["batch 3 waits until group b has covered what it read"] * lines


def test_a_lease_that_came_back_meanwhile_moves_as_it_is_now(played: PlayedCluster) -> None:
    played.offsets = [held(GROUP, 0), held(GROUP, 0, "", 2)]
    assert leased(played).commit(work())
    (moved,) = played.asked(ApiKey.TXN_OFFSET_COMMIT)
    assert moved.topics[0].partitions[0].committed_metadata == '{"group":"a","turn":2,"run":"run"}'


def test_a_batch_that_was_begun_when_the_lease_is_transferred_waits(played: PlayedCluster) -> None:
    played.offsets = [held(GROUP, 0), held("b", 0, "", 1), held("b", 10, "x", 1)]
    assert leased(played).commit(work()) is False
    assert played.steps() == ["OFFSET_FETCH", "INIT_PRODUCER_ID", "OFFSET_FETCH", "OFFSET_FETCH"]


@pytest.mark.parametrize(
    ("then", "is_fenced"),
    [
        (held(GROUP, 0, "another"), True),
        (held(GROUP, 0, "older"), False),
        (held(GROUP, 0, "run"), False),
        (held("b", 10, "another", 1), False),
    ],
    ids=["another run of the group", "the run before", "this run", "another group"],
)
def test_a_writer_that_is_fenced_reads_the_lease_again(
    played: PlayedCluster, then: list[tuple[str, int, int, str]], is_fenced: bool
) -> None:
    played.codes[ApiKey.END_TXN] = [ErrorCode.INVALID_TXN_STATE]
    played.codes[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED]
    played.offsets = [held(GROUP, 0, "older"), held(GROUP, 0, "older"), then]
    if is_fenced:
        with pytest.raises(FencedError, match="another run of this query writes for the group a"):
            leased(played).commit(work())
        assert waited(played) == [False, True, False], "it may be what holds this one up"
    else:
        assert leased(played).commit(work()) is (then != held("b", 10, "another", 1))
        assert played.asked(ApiKey.INIT_PRODUCER_ID)[-1].producer_id == -1


@pytest.mark.parametrize(
    ("found", "span", "error", "says"),
    [
        ([[], []], SPAN, LeaseError, "the gate lease was never made"),
        ([held(GROUP, 0), []], SPAN, LeaseError, "is gone: its offsets were deleted"),
        ([[(TOPIC, 0, 1, "x")]], SPAN, LeaseError, "is not a gate"),
        ([held(GROUP, 3)], SPAN, LeaseError, "would leave a gap or write something twice"),
        ([held(GROUP, 0)], Span({PARTITION: 10}, {PARTITION: 10}), OptionError, "rows without having read a record"),
    ],
    ids=["never made", "gone", "of something else", "not where the output ends", "timers"],
)
def test_a_batch_without_the_lease_is_refused(
    played: PlayedCluster, found: list[list[tuple[str, int, int, str]]], span: Span, error: type[Exception], says: str
) -> None:
    played.offsets = [*found]
    with pytest.raises(error, match=says):
        leased(played, span).commit(work())
    assert "PRODUCE" not in played.steps()
    if found == [[], []]:
        assert waited(played) == [False, True], "one that is being made is waited for"


def creates(played: PlayedCluster, **settings: str) -> Callable[[], str]:
    cluster = played.connected(**settings)
    return lambda: create_lease(cluster, LEASE, GROUP, {PARTITION: 4}).group


def test_a_lease_is_created_by_one_query_alone(played: PlayedCluster) -> None:
    assert creates(played)() == GROUP
    assert played.steps() == ["INIT_PRODUCER_ID", "OFFSET_FETCH", *WHOLE[4:]]
    assert waited(played) == [True]
    (moved,) = played.asked(ApiKey.TXN_OFFSET_COMMIT)
    assert (moved.producer_id, moved.producer_epoch) == PRODUCER
    (part,) = moved.topics[0].partitions
    assert (part.committed_offset, part.committed_metadata) == (4, '{"group":"a","turn":0,"run":""}')
    played.offsets = [held("b", 1)]
    assert creates(played)() == "b"
    assert len(played.asked(ApiKey.TXN_OFFSET_COMMIT)) == 1


def test_the_creation_of_a_lease_waits_for_another_one(played: PlayedCluster) -> None:
    played.codes[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    assert creates(played)() == GROUP
    assert len(played.asked(ApiKey.FIND_COORDINATOR)) == 2, "it is one try"
    played.codes[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.PRODUCER_FENCED]
    assert creates(played)() == GROUP
    assert len(played.asked(ApiKey.FIND_COORDINATOR)) == 5, "the second one began again"


def test_a_commit_waits_no_longer_than_default_api_timeout_ms(played: PlayedCluster) -> None:
    played.codes[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.CONCURRENT_TRANSACTIONS] * 20
    with pytest.raises(ClusterError, match="whether the gate could be made"):
        creates(played, default_api_timeout_ms="1")()
