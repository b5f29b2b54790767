"""ListTransactions and DescribeTransactions (KIP-664), and the stored record of a transactional id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.common.errors import ErrorCode, ProtocolError
from odradek.coordinator.transaction.metadata import TransactionMetadata
from odradek.coordinator.transaction.queries import describe_transaction, list_transactions
from odradek.coordinator.transaction.records import TRANSACTION_RECORDS, TransactionRecord
from odradek.coordinator.transaction.state import TransactionState
from odradek.protocol.messages.transaction_log_value import TransactionLogValue
from odradek.protocol.record_types import encode_coordinator_value

NOW_MS = 10_000
AT_REST = TransactionMetadata(7, 4, 60_000, last_update_ms=1000)
IDS = {
    "rest": AT_REST,
    "new": replace(AT_REST, producer_id=8, state=TransactionState.ONGOING, start_ms=NOW_MS),
    "old": replace(
        AT_REST,
        producer_id=9,
        state=TransactionState.ONGOING,
        start_ms=4_000,
        partitions=frozenset({("t", 1), ("t", 0), ("s", 3)}),
    ),
    "ending": replace(AT_REST, producer_id=9, state=TransactionState.PREPARE_COMMIT, start_ms=3_000),
    "ended": replace(AT_REST, state=TransactionState.COMPLETE_ABORT, start_ms=2_000),
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["rest", "new", "old", "ending", "ended"]),
        ({"states": ["Ongoing", "PrepareCommit"]}, ["new", "old", "ending"]),
        ({"states": ["Ongoing", "no such state"]}, ["new", "old"]),
        ({"states": ["no such state"]}, []),
        ({"producer_ids": [8, 9]}, ["new", "old", "ending"]),
        ({"states": ["Ongoing"], "producer_ids": [9]}, ["old"]),
        ({"duration_ms": 0}, ["new", "old", "ending", "ended"]),
        ({"duration_ms": 6_000}, ["old", "ending", "ended"]),
        ({"duration_ms": 6_001}, ["ending", "ended"]),
        ({"names": ["old", "ended", "unknown"]}, ["old", "ended"]),
        ({"names": []}, []),
    ],
)
def test_ids_are_listed_that_pass_every_filter(wanted: dict[str, Any], found: list[str]) -> None:
    filters: dict[str, Any] = {"states": [], "producer_ids": [], "duration_ms": -1, **wanted}
    listed = list_transactions(IDS, now_ms=NOW_MS, **filters)
    assert [each.transactional_id for each in listed] == found
    for each in listed:
        present = IDS[each.transactional_id]
        assert (each.producer_id, each.transaction_state) == (present.producer_id, present.state.label)


@pytest.mark.parametrize(("name", "start_ms"), [("rest", -1), ("old", 4_000), ("ending", 3_000), ("ended", -1)])
def test_a_description_says_when_an_open_transaction_began(name: str, start_ms: int) -> None:
    found = describe_transaction(IDS, name)
    present = IDS[name]
    assert (found.transactional_id, found.error_code) == (name, ErrorCode.NONE)
    assert (found.transaction_start_time_ms, found.transaction_timeout_ms) == (start_ms, 60_000)
    assert found.transaction_state == present.state.label
    assert (found.producer_id, found.producer_epoch) == (present.producer_id, 4)


def test_a_description_has_partitions_by_topic_in_order() -> None:
    assert [(each.topic, each.partitions) for each in describe_transaction(IDS, "old").topics] == [
        ("s", [3]),
        ("t", [0, 1]),
    ]


def test_an_id_that_is_not_known_is_not_described() -> None:
    found = describe_transaction(IDS, "unknown")
    assert (found.transactional_id, found.error_code) == ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def test_a_stored_id_is_read_as_it_was_written() -> None:
    """Every field is stored, except the last epoch, which is only for a repeated request."""
    codec = TRANSACTION_RECORDS
    header: Any = None
    full = TransactionMetadata(
        7,
        4,
        60_000,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({("t", 1), ("t", 0), ("s", 3)}),
        previous_producer_id=6,
        next_producer_id=9,
        next_producer_epoch=2,
        start_ms=11,
        last_update_ms=12,
        version=2,
    )
    for metadata in (full, AT_REST, None, *IDS.values()):
        encoded = codec.encode(TransactionRecord("x", metadata))
        assert (encoded.value is None) == (metadata is None)
        assert (encoded.producer_id, encoded.is_control) == (-1, False)
        assert codec.decode(encoded.key, encoded.value, header) == TransactionRecord("x", metadata)
    encoded = codec.encode(TransactionRecord("x", replace(full, last_producer_epoch=3)))
    assert codec.decode(encoded.key, encoded.value, header) == TransactionRecord("x", full)


def test_a_state_that_no_version_has_is_no_transaction() -> None:
    value = TransactionLogValue(
        producer_id=7, producer_epoch=4, transaction_timeout_ms=1, transaction_status=9, transaction_partitions=None,
        transaction_last_update_timestamp_ms=1, transaction_start_timestamp_ms=1,
    )  # fmt: skip
    key = TRANSACTION_RECORDS.encode(TransactionRecord("x", None)).key
    header: Any = None
    with pytest.raises(ProtocolError, match="state 9"):
        TRANSACTION_RECORDS.decode(key, encode_coordinator_value(value, 1), header)
    assert TRANSACTION_RECORDS.decode(b"\x00\x07" + key[2:], b"", header) is None, "a record of a later version"
