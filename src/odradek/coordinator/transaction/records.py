"""The records of __transaction_state, in Kafka's format.

The key is an int16 0 and the transactional id; the value is an int16 version and the state. A null value removes the
id. `kafka-dump-log` decodes them with its transaction log decoder.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.common.errors import ProtocolError
from odradek.coordinator.batches import EncodedRecord
from odradek.coordinator.transaction.metadata import TransactionMetadata
from odradek.coordinator.transaction.state import TransactionState
from odradek.protocol.messages.transaction_log_key import TransactionLogKey
from odradek.protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from odradek.protocol.record_types import (
    CoordinatorKind,
    coordinator_type_id,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from odradek.record.batch import BatchHeader

TRANSACTION_TOPIC = "__transaction_state"
# Version 1 includes the previous and next producer ids and the transaction version (KIP-890).
VALUE_VERSION = 1


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The new state of a transactional id; None removes the id."""

    transactional_id: str
    metadata: TransactionMetadata | None


class TransactionRecordCodec:
    """Encodes and decodes the records of __transaction_state."""

    topic = TRANSACTION_TOPIC

    def encode(self, record: TransactionRecord) -> EncodedRecord:
        key = encode_coordinator_key(TransactionLogKey(transactional_id=record.transactional_id))
        if record.metadata is None:
            return EncodedRecord(key, None)
        return EncodedRecord(key, encode_coordinator_value(_to_value(record.metadata), VALUE_VERSION))

    def decode(self, key: bytes, value: bytes | None, header: BatchHeader) -> TransactionRecord | None:
        if coordinator_type_id(key) != TransactionLogKey.KEY:
            return None
        message = decode_coordinator_key(CoordinatorKind.TRANSACTION, key)
        assert isinstance(message, TransactionLogKey)
        if value is None:
            return TransactionRecord(message.transactional_id, None)
        body, _ = decode_coordinator_value(CoordinatorKind.TRANSACTION, 0, value)
        assert isinstance(body, TransactionLogValue)
        return TransactionRecord(message.transactional_id, _from_value(body))

    def decode_marker(self, header: BatchHeader, committed: bool) -> TransactionRecord | None:
        return None


TRANSACTION_RECORDS = TransactionRecordCodec()


def _to_value(metadata: TransactionMetadata) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition_id in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition_id)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        next_producer_epoch=metadata.next_producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        # Kafka's decoder requires null in the Empty state.
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.version,
    )


def _from_value(value: TransactionLogValue) -> TransactionMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise ProtocolError(f"a transaction of state {value.transaction_status}") from None
    return TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (each.topic, partition_id)
            for each in value.transaction_partitions or ()
            for partition_id in each.partition_ids
        ),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        version=value.client_transaction_version,
    )
