"""The coordinator's decisions about a transactional id: which producer may go on, how it ends, and timeouts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.log import all_whole
from odradek.coordinator.transaction.connections import Arrival
from odradek.coordinator.transaction.machine import ProducerIdNeededError, Request, TransactionMachine
from odradek.coordinator.transaction.metadata import NO_TIMEOUT_MS, TransactionMetadata
from odradek.coordinator.transaction.metrics import TransactionCounts, transaction_families
from odradek.coordinator.transaction.records import TransactionRecord
from odradek.coordinator.transaction.state import TransactionState
from odradek.statemachine.timeline import Timeline
from tests.support.models.batches import batch

FRESH, TIMEOUT_MS, NOW_MS = 900, 60_000, 5_000
LAST_EPOCH = 32_766  # the largest that a client gets; one more is for the coordinator's own abort
NONE, FENCED = -1, -2
PARTITIONS = frozenset({("t", 0), ("t", 1)})
AT_REST = TransactionMetadata(7, 4, TIMEOUT_MS, last_update_ms=1000)
OPEN = replace(AT_REST, state=TransactionState.ONGOING, partitions=PARTITIONS, start_ms=2000)
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


class Machine:
    """A machine whose records are committed at once."""

    def __init__(self, **ids: TransactionMetadata) -> None:
        self.machine = TransactionMachine(Timeline())
        for name, metadata in ids.items():
            self.machine.replay(TransactionRecord(name, metadata), 0)

    def apply(self, result: Any) -> Any:
        for record in result.records:
            self.machine.replay(record, 0)
        return result.response

    def init(self, expected: tuple[int, int] | None = None, *, fresh: int | None = FRESH) -> Any:
        return self.apply(
            self.machine.init_producer_id("x", TIMEOUT_MS, expected, fresh_producer_id=fresh, now_ms=NOW_MS)
        )

    def end(self, request: Request, *, commit: bool, fresh: int | None = FRESH) -> Any:
        return self.apply(self.machine.end(request, commit=commit, fresh_producer_id=fresh, now_ms=NOW_MS))

    @property
    def present(self) -> TransactionMetadata:
        return self.machine.ids["x"]


def refused(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action()
    return caught.value.code


class TestInit:
    def test_a_first_producer_needs_a_fresh_id(self) -> None:
        node = Machine()
        with pytest.raises(ProducerIdNeededError):
            node.init(fresh=None)
        assert node.init().response == (FRESH, 0)
        assert node.present == TransactionMetadata(FRESH, 0, TIMEOUT_MS, last_update_ms=NOW_MS)

    @pytest.mark.parametrize("state", [EMPTY, COMMITTED, ABORTED])
    def test_the_next_one_shuts_out_the_one_before(self, state: TransactionState) -> None:
        node = Machine(x=replace(AT_REST, state=state))
        outcome = node.init()
        assert (outcome.response, outcome.ended, outcome.error) == ((7, 5), (), ErrorCode.NONE)
        assert (node.present.state, node.present.last_producer_epoch) == (EMPTY, NONE)

    @pytest.mark.parametrize(
        ("keeper", "named"), [((7, 5), "producer id 7 at epoch 5"), ((9, 0), "producer id 9 at epoch 0")]
    )
    def test_a_fenced_writer_hears_the_identity_that_counts(self, keeper: tuple[int, int], named: str) -> None:
        node = Machine(x=replace(OPEN, next_producer_id=keeper[0], next_producer_epoch=keeper[1]))
        for act in (
            lambda: node.end(Request("x", 7, 4, 2), commit=True),
            lambda: node.machine.add_partitions(Request("x", 7, 4, 2), frozenset({("t", 2)}), NOW_MS),
        ):
            with pytest.raises(ApiError, match=f"^x has {named}, not 7 at epoch 4$"):
                act()

    def test_one_that_goes_on_may_ask_again_where_the_answer_was_lost(self) -> None:
        node = Machine(x=AT_REST)
        assert [node.init((7, 4)).response for _ in range(3)] == [(7, 5)] * 3
        assert node.present.last_producer_epoch == 4
        assert refused(lambda: node.init((7, 3))) is ErrorCode.PRODUCER_FENCED
        assert refused(lambda: node.init((7, NONE))) is ErrorCode.PRODUCER_FENCED
        assert node.init((7, 5)).response == (7, 6)
        assert refused(lambda: node.init((7, 4))) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize(
        ("expected", "answer", "last_epoch"),
        [(None, (FRESH, 0), NONE), ((7, LAST_EPOCH), (FRESH, 0), LAST_EPOCH), ((7, 9), (7, LAST_EPOCH), 9)],
        ids=["anyone", "the producer itself", "one whose answer was lost"],
    )
    def test_where_the_epochs_are_used_up_there_is_another_id(
        self, expected: tuple[int, int] | None, answer: tuple[int, int], last_epoch: int
    ) -> None:
        node = Machine(x=replace(AT_REST, producer_epoch=LAST_EPOCH, last_producer_epoch=9))
        assert node.init(expected).response == answer
        assert node.present.last_producer_epoch == last_epoch
        assert node.present.previous_producer_id == (7 if answer == (FRESH, 0) else NONE)

    @pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
    def test_a_fresh_id_is_needed_only_then(self, epoch: int) -> None:
        node = Machine(x=replace(AT_REST, producer_epoch=epoch))
        if epoch == LAST_EPOCH:
            with pytest.raises(ProducerIdNeededError):
                node.init(fresh=None)
        else:
            assert node.init(fresh=None).response == (7, LAST_EPOCH)

    def test_an_open_transaction_is_aborted_first(self) -> None:
        node = Machine(x=OPEN)
        outcome = node.init()
        assert (outcome.response, outcome.error) == ((7, 5), ErrorCode.CONCURRENT_TRANSACTIONS)
        ((ended),) = outcome.ended
        assert (ended.transactional_id, ended.fenced_by, ended.committed) == ("x", "InitProducerId", False)
        assert (node.present.state, node.present.last_producer_epoch) == (PREPARE_ABORT, FENCED)
        assert ended.metadata == node.present and node.present.partitions == PARTITIONS
        assert refused(node.init) is ErrorCode.CONCURRENT_TRANSACTIONS, "it is ending"

    @pytest.mark.parametrize("expected", [(7, 3), (7, 5), (8, 4)])
    def test_a_fenced_producer_ends_no_ones_work(self, expected: tuple[int, int]) -> None:
        node = Machine(x=OPEN)
        assert refused(lambda: node.init(expected)) is ErrorCode.PRODUCER_FENCED
        assert node.present == OPEN

    @pytest.mark.parametrize(
        ("expected", "code"),
        [
            ((7, LAST_EPOCH), ErrorCode.PRODUCER_FENCED),
            ((6, LAST_EPOCH), None),
            ((6, LAST_EPOCH - 1), ErrorCode.PRODUCER_FENCED),
        ],
    )
    def test_a_producer_whose_id_was_replaced_may_not_know_it_yet(
        self, expected: tuple[int, int], code: ErrorCode | None
    ) -> None:
        node = Machine(x=replace(AT_REST, previous_producer_id=6, producer_epoch=0, last_producer_epoch=LAST_EPOCH))
        if code is None:
            assert node.init(expected).response == (7, 0)
        elif expected[0] == 7:
            assert node.init(expected).response == (7, 0), "of this id that epoch was answered before"
        else:
            assert refused(lambda: node.init(expected)) is code

    def test_one_that_knows_the_next_id_comes_again(self) -> None:
        node = Machine(x=replace(OPEN, state=PREPARE_COMMIT, next_producer_id=8))
        assert refused(lambda: node.init((8, 0))) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert refused(lambda: node.init((9, 0))) is ErrorCode.PRODUCER_FENCED
        node = Machine(x=replace(OPEN, state=PREPARE_COMMIT))
        assert refused(lambda: node.init((-1, 0))) is ErrorCode.PRODUCER_FENCED, "there is none"


class TestEnd:
    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize(("version", "after"), [(0, (7, 4)), (1, (7, 4)), (2, (7, 5))])
    def test_every_end_of_transaction_version_2_bumps_the_epoch(
        self, version: int, after: tuple[int, int], commit: bool
    ) -> None:
        node = Machine(x=replace(OPEN, version=version))
        outcome = node.end(Request("x", 7, 4, version), commit=commit)
        assert outcome.response == after
        assert node.present.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
        assert node.present.last_producer_epoch == (4 if version == 2 else NONE)
        (ended,) = outcome.ended
        assert (ended.committed, ended.fenced_by, ended.metadata) == (commit, "", node.present)

    def test_where_the_epochs_are_used_up_the_producer_goes_on_with_another_id(self) -> None:
        node = Machine(x=replace(OPEN, producer_epoch=LAST_EPOCH, version=2))
        request = Request("x", 7, LAST_EPOCH, 2)
        with pytest.raises(ProducerIdNeededError):
            node.end(request, commit=True, fresh=None)
        outcome = node.end(request, commit=True)
        assert outcome.response == (FRESH, 0)
        assert (node.present.producer_id, node.present.producer_epoch) == (7, LAST_EPOCH + 1), "the markers bear these"
        assert node.apply(node.machine.complete(outcome.ended[0], NOW_MS)).response is True
        assert (node.present.producer_id, node.present.producer_epoch) == (FRESH, 0)
        assert node.end(request, commit=True).response == (FRESH, 0), "the answer was lost"
        for other in (Request("x", 7, LAST_EPOCH - 1, 2), Request("x", 8, LAST_EPOCH, 2)):
            code = refused(partial(node.end, other, commit=True))
            assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    @pytest.mark.parametrize(
        ("present", "request_", "commit", "code"),
        [
            (replace(OPEN, state=COMMITTED, version=2), Request("x", 7, 3, 2), True, None),
            (replace(OPEN, state=ABORTED, version=2), Request("x", 7, 3, 2), False, None),
            (replace(OPEN, state=COMMITTED, version=2), Request("x", 7, 3, 2), False, ErrorCode.INVALID_TXN_STATE),
            (replace(OPEN, state=COMMITTED, version=2), Request("x", 7, 2, 2), True, ErrorCode.PRODUCER_FENCED),
            (replace(OPEN, state=COMMITTED, version=2), Request("x", 7, 4, 2), True, ErrorCode.INVALID_TXN_STATE),
            (replace(OPEN, state=COMMITTED, version=0), Request("x", 7, 3, 2), True, ErrorCode.PRODUCER_FENCED),
            (replace(OPEN, state=COMMITTED, version=2), Request("x", 7, 3, 1), True, ErrorCode.PRODUCER_FENCED),
            (replace(OPEN, state=EMPTY, version=2), Request("x", 7, 3, 2), True, ErrorCode.PRODUCER_FENCED),
            (replace(OPEN, state=ONGOING, version=2), Request("x", 7, 3, 2), True, ErrorCode.PRODUCER_FENCED),
            (
                replace(OPEN, state=ABORTED, version=2, last_producer_epoch=FENCED),
                Request("x", 7, 3, 2),
                False,
                ErrorCode.PRODUCER_FENCED,
            ),
            (replace(OPEN, state=PREPARE_COMMIT, version=2), Request("x", 7, 3, 2), True, "again"),
            (replace(OPEN, state=PREPARE_COMMIT, version=2), Request("x", 7, 3, 2), False, ErrorCode.INVALID_TXN_STATE),
            (replace(OPEN, state=PREPARE_COMMIT, version=0), Request("x", 7, 4, 0), True, "again"),
            (replace(OPEN, state=PREPARE_COMMIT, version=0), Request("x", 7, 4, 0), False, ErrorCode.INVALID_TXN_STATE),
            (replace(OPEN, state=COMMITTED, version=0), Request("x", 7, 4, 0), True, None),
            (replace(OPEN, state=COMMITTED, version=0), Request("x", 7, 4, 2), True, ErrorCode.INVALID_TXN_STATE),
            (replace(OPEN, state=ABORTED, version=0), Request("x", 7, 4, 0), False, None),
            (replace(OPEN, state=ABORTED, version=0), Request("x", 7, 4, 0), True, ErrorCode.INVALID_TXN_STATE),
            (replace(OPEN, state=EMPTY, version=0), Request("x", 7, 4, 0), True, ErrorCode.INVALID_TXN_STATE),
            (replace(OPEN, version=0), Request("x", 8, 4, 0), True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (replace(OPEN, version=0), Request("y", 7, 4, 0), True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (replace(OPEN, version=0), Request("x", 7, 5, 0), True, ErrorCode.PRODUCER_FENCED),
        ],
    )
    def test_an_end_that_comes_again_or_to_the_wrong_state(
        self, present: TransactionMetadata, request_: Request, commit: bool, code: ErrorCode | str | None
    ) -> None:
        node = Machine(x=present)
        if code is None:
            assert node.end(request_, commit=commit).response == (7, 4)
        else:
            expected = ErrorCode.CONCURRENT_TRANSACTIONS if code == "again" else code
            assert refused(lambda: node.end(request_, commit=commit)) is expected
        assert node.present == present

    def test_one_that_wrote_nothing_uses_its_epoch_up_where_it_aborts(self) -> None:
        node = Machine(x=replace(AT_REST, version=2))
        assert node.end(Request("x", 7, 4, 2), commit=False).response == (7, 5)
        assert (node.present.state, node.present.partitions) == (PREPARE_ABORT, frozenset())

    def test_an_epoch_of_the_coordinators_own_is_no_clients(self) -> None:
        node = Machine(x=replace(OPEN, state=ABORTED, producer_epoch=LAST_EPOCH + 1))
        assert refused(lambda: node.end(Request("x", 7, LAST_EPOCH + 1), commit=False)) is ErrorCode.PRODUCER_FENCED

    def test_one_that_goes_on_too_early_comes_again(self) -> None:
        node = Machine(x=replace(OPEN, state=PREPARE_COMMIT, version=2))
        assert refused(lambda: node.end(Request("x", 7, 4, 2), commit=True)) is ErrorCode.CONCURRENT_TRANSACTIONS

    @pytest.mark.parametrize("change", [{"state": ABORTED}, {"producer_id": 8}, {"producer_epoch": 9}])
    def test_markers_of_another_end_complete_nothing(self, change: dict[str, Any]) -> None:
        node = Machine(x=OPEN)
        (ended,) = node.end(Request("x", 7, 4), commit=True).ended
        node.machine.replay(TransactionRecord("x", replace(node.present, **change)), 0)
        before = node.present
        assert node.apply(node.machine.complete(ended, NOW_MS)).response is False
        node.machine.replay(TransactionRecord("x", None), 0)
        assert node.apply(node.machine.complete(ended, NOW_MS)).response is False
        assert before.state is not COMMITTED


class TestPartitions:
    def test_partitions_are_added_to_the_open_transaction_once(self) -> None:
        node = Machine(x=AT_REST)
        request = Request("x", 7, 4, 2)
        for added in ({("t", 0)}, {("t", 1)}):
            node.apply(node.machine.add_partitions(request, frozenset(added), NOW_MS))
        assert (node.present.state, node.present.partitions) == (ONGOING, PARTITIONS)
        assert not node.machine.add_partitions(request, frozenset({("t", 1)}), NOW_MS).records
        found = node.machine.verify_partitions(request, [("t", 1), ("t", 2)]).response.response
        assert found == {("t", 1)}

    def test_an_ended_transaction_has_no_partitions(self) -> None:
        node = Machine(x=replace(OPEN, state=COMMITTED))
        assert not node.machine.verify_partitions(Request("x", 7, 4), [("t", 1)]).response.response

    @pytest.mark.parametrize(
        ("present", "request_", "code"),
        [
            (OPEN, Request("y", 7, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (OPEN, Request("x", 8, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (OPEN, Request("x", 7, 3), ErrorCode.PRODUCER_FENCED),
            (replace(OPEN, producer_epoch=LAST_EPOCH + 1), Request("x", 7, LAST_EPOCH + 1), ErrorCode.PRODUCER_FENCED),
            (replace(OPEN, state=PREPARE_ABORT), Request("x", 7, 4), ErrorCode.CONCURRENT_TRANSACTIONS),
            (
                replace(OPEN, state=PREPARE_ABORT, next_producer_id=8),
                Request("x", 8, 0),
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ),
            (
                replace(OPEN, state=PREPARE_ABORT, next_producer_id=8),
                Request("x", 7, 4),
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ),
        ],
    )
    def test_whose_transaction_it_is(self, present: TransactionMetadata, request_: Request, code: ErrorCode) -> None:
        node = Machine(x=present)
        assert refused(lambda: node.machine.add_partitions(request_, PARTITIONS, NOW_MS)) is code
        assert refused(lambda: node.machine.verify_partitions(request_, [])) is code

    def test_the_last_epoch_of_a_client_has_transactions(self) -> None:
        node = Machine(x=replace(AT_REST, producer_epoch=LAST_EPOCH))
        node.apply(node.machine.add_partitions(Request("x", 7, LAST_EPOCH), PARTITIONS, NOW_MS))
        assert node.present.state is ONGOING

    def test_a_request_over_an_earlier_connection_is_refused_as_late(self) -> None:
        node = Machine(x=OPEN)

        def add(connection: int) -> None:
            request = Request("x", 7, 4, arrival=Arrival(connection, connection))
            node.apply(node.machine.add_partitions(request, PARTITIONS, NOW_MS))

        add(1)
        add(2)
        assert refused(lambda: add(1)) is ErrorCode.INVALID_TXN_STATE
        for metadata in (None, OPEN):
            node.machine.replay(TransactionRecord("x", metadata), 0)
        add(1)
        add(2)
        node.machine.on_unloaded()
        add(1)


class TestTime:
    @staticmethod
    def look(node: Machine, now_ms: int, monotonic_ms: int = 0) -> list[str]:
        outcome = node.apply(node.machine.abort_timed_out(now_ms, monotonic_ms))
        assert all(each.fenced_by == "its timeout" and not each.committed for each in outcome.ended)
        return [each.transactional_id for each in outcome.ended]

    def test_a_transaction_over_its_timeout_is_aborted(self) -> None:
        node = Machine(x=OPEN, y=replace(OPEN, timeout_ms=TIMEOUT_MS + 1), z=AT_REST)
        assert self.look(node, 2000 + TIMEOUT_MS) == []
        assert self.look(node, 2001 + TIMEOUT_MS) == ["x"]
        assert (node.present.state, node.present.producer_epoch) == (PREPARE_ABORT, 5)
        assert node.present.last_producer_epoch == NONE
        assert self.look(node, 2002 + TIMEOUT_MS) == ["y"]
        assert self.look(node, 10**9) == []

    def test_a_clock_that_was_set_back_keeps_nothing_open(self) -> None:
        node = Machine(x=OPEN)
        assert self.look(node, 0, 100) == []
        assert self.look(node, 0, 100 + TIMEOUT_MS) == []
        assert self.look(node, 0, 101 + TIMEOUT_MS) == ["x"]

    def test_each_transaction_is_seen_from_its_own_beginning(self) -> None:
        node = Machine(x=OPEN)
        assert self.look(node, 0, 100) == []
        node.machine.replay(TransactionRecord("x", replace(OPEN, start_ms=2500)), 0)
        assert self.look(node, 0, 100 + TIMEOUT_MS) == []
        assert self.look(node, 0, 101 + TIMEOUT_MS) == []
        assert self.look(node, 0, 101 + 2 * TIMEOUT_MS) == ["x"]

    def test_a_look_ends_five_hundred_and_the_next_the_others(self) -> None:
        node = Machine(**{f"x{number}": OPEN for number in range(501)})
        assert [len(self.look(node, 10**9)) for _ in range(3)] == [500, 1, 0]

    def test_ids_at_rest_expire_and_others_do_not(self) -> None:
        kept = {"open": OPEN, "ending": replace(OPEN, state=PREPARE_ABORT)}
        node = Machine(x=AT_REST, y=replace(AT_REST, state=ABORTED, last_update_ms=1001), **kept)

        def expire(now_ms: int) -> int:
            return int(node.apply(node.machine.expire(now_ms, 600)).response)

        assert expire(1599) == 0
        assert expire(1600) == 1 and "x" not in node.machine.ids
        assert expire(10**9) == 1 and set(node.machine.ids) == set(kept)

    def test_five_hundred_expire_at_once(self) -> None:
        node = Machine(**{f"x{number}": AT_REST for number in range(501)})
        assert [node.apply(node.machine.expire(10**9, 1)).response for _ in range(3)] == [500, 1, 0]

    def test_a_new_leader_finishes_what_was_ending(self) -> None:
        ending = replace(OPEN, state=PREPARE_COMMIT)
        node = Machine(x=OPEN, y=ending, z=AT_REST)
        (ended,) = node.machine.unfinished().response.ended
        assert (ended.transactional_id, ended.metadata, ended.fenced_by) == ("y", ending, "")


class TestKept:
    """KIP-939: a transaction that another client than its writer is to end."""

    KEPT = replace(OPEN, next_producer_id=9, next_producer_epoch=3)

    @staticmethod
    def keep(
        node: Machine, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS, fresh: int | None = FRESH
    ) -> Any:
        return node.apply(node.machine.keep_prepared("x", timeout_ms, expected, fresh_producer_id=fresh, now_ms=NOW_MS))

    @pytest.mark.parametrize("other", [(7, 4), (8, 3), (9, 2), (9, 4)])
    def test_only_its_keeper_goes_on_under_its_identity(self, other: tuple[int, int]) -> None:
        node = Machine(x=self.KEPT)
        assert refused(lambda: node.init(other)) is ErrorCode.PRODUCER_FENCED
        assert node.present == self.KEPT
        assert node.init((9, 3)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert (node.present.state, node.present.producer_epoch) == (PREPARE_ABORT, 5)
        assert node.present.next_identity == (9, 4)

    @pytest.mark.parametrize("other", [(7, 3), (7, 5), (8, 4)])
    def test_one_that_names_another_identity_keeps_nothing(self, other: tuple[int, int]) -> None:
        node = Machine(x=OPEN)
        assert refused(lambda: self.keep(node, other)) is ErrorCode.PRODUCER_FENCED
        assert node.present == OPEN
        kept = self.keep(node, (7, 4)).response
        assert (kept.client, kept.writer) == ((7, 5), (7, 4))
        assert refused(lambda: self.keep(node, (7, 4))) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize(("epoch", "client"), [(LAST_EPOCH - 2, (7, LAST_EPOCH - 1)), (LAST_EPOCH - 1, (FRESH, 0))])
    def test_the_last_epoch_is_left_to_the_end(self, epoch: int, client: tuple[int, int]) -> None:
        node = Machine(x=replace(OPEN, producer_epoch=epoch))
        if client[0] == FRESH:
            with pytest.raises(ProducerIdNeededError):
                self.keep(node, fresh=None)
        assert self.keep(node).response.client == client
        assert (node.present.last_update_ms, node.present.start_ms) == (NOW_MS, 2000)

    def test_a_transaction_of_two_phase_commit_is_kept_by_such_a_client_alone(self) -> None:
        node = Machine(x=replace(OPEN, timeout_ms=NO_TIMEOUT_MS))
        code = refused(lambda: self.keep(node))
        assert code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        self.keep(node, timeout_ms=NO_TIMEOUT_MS)
        node = Machine(x=OPEN)
        self.keep(node, timeout_ms=NO_TIMEOUT_MS)
        assert node.present.timeout_ms == NO_TIMEOUT_MS

    def test_where_nothing_is_open_keeping_is_initializing(self) -> None:
        node = Machine(x=AT_REST)
        kept = self.keep(node).response
        assert (kept.client, kept.writer) == ((7, 5), (NONE, NONE))
        assert node.present.state is EMPTY


def test_metrics_count_ids_by_state_and_the_markers_that_are_owed() -> None:
    node = Machine(
        x=OPEN,
        y=replace(OPEN, state=PREPARE_COMMIT),
        z=replace(OPEN, state=PREPARE_ABORT, partitions=frozenset({("t", 5)})),
        w=AT_REST,
    )
    assert TransactionCounts() == TransactionCounts(0, 0, 0, 0, 0, 0)
    counts = TransactionCounts(longest_load_ms=1500)
    for committed in (True, True, False):
        counts.ended(committed=committed)
    shards: Any = [node, node]
    families = {family.name: family.samples for family in transaction_families(counts, shards)}
    by_state = {sample.labels[0][1]: sample.value for sample in families["odradek_transactional_ids"]}
    assert {state for state, value in by_state.items() if value == 2} == {
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "Empty",
    }
    single = {name: samples[0].value for name, samples in families.items()}
    assert single["odradek_transaction_pending_markers"] == 6
    assert (single["odradek_transactions_committed"], single["odradek_transactions_aborted"]) == (2, 1)
    assert single["odradek_transaction_longest_load_seconds"] == 1.5
    assert [value for name, value in single.items() if "timed_out" in name or "expired" in name] == [0, 0]


def test_a_read_of_the_log_is_whole_where_every_batch_is() -> None:
    one, other = batch(b"a"), batch(b"b", b"c")
    assert all_whole(one + other) and all_whole(b"")
    for at in (len(one) - 1, len(one) + len(other) - 1):
        damaged = bytearray(one + other)
        damaged[at] ^= 1
        assert not all_whole(bytes(damaged))
