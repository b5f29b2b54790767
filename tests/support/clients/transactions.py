"""A transactional producer by hand, in both generations of the protocol."""

from __future__ import annotations

from typing import Any

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.clients.api_calls import Calls, batch, error_codes, fresh_name, name_of


class TransactionalProducer(Calls):
    """One connection with one transactional id; every method gives the name of the error code.

    Args:
        version: 2 speaks as clients since Kafka 4.0 do (KIP-890), 0 as those before.
    """

    def __init__(self, port: int, transactional_id: str | None = None, *, version: int = 2) -> None:
        super().__init__(port)
        self.transactional_id = transactional_id or fresh_name("txn")
        self.version = version
        self.producer_id = -1
        self.epoch = -1
        self.writer = (-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        found = self.request_until_loaded(ApiKey.FIND_COORDINATOR, 4, asked)
        assert not any(error_codes(found)), found

    def init(
        self,
        *,
        timeout_ms: int = 60_000,
        expected: tuple[int, int] = (-1, -1),
        until_done: bool = True,
        two_phase: bool = False,
        keep: bool = False,
    ) -> str:
        """InitProducerId; asks again while the transaction before is being ended.

        Args:
            two_phase, keep: the flags of KIP-939; `writer` is then the identity under which an open one was written.
        """
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        version = 6 if two_phase or keep else 5
        answer = self.request_until_loaded(ApiKey.INIT_PRODUCER_ID, version, request)
        while until_done and name_of(answer.error_code) == "CONCURRENT_TRANSACTIONS":
            answer = self.request_until_loaded(ApiKey.INIT_PRODUCER_ID, version, request)
        self.writer = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return name_of(answer.error_code)

    def add(self, topic: str, *partitions: int, version: int = 3) -> str:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))],
        )
        answer = self.request_until_done(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        return name_of(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def write(self, topic: str, *values: bytes, partition: int = 0, sequence: int | None = None) -> str:
        """Produce one batch; in version 0 the partition must have been added."""
        key = (topic, partition)
        at = self.sequences.get(key, 0) if sequence is None else sequence
        data = batch(*values, producer_id=self.producer_id, producer_epoch=self.epoch, sequence=at, transactional=True)
        version = 12 if self.version == 2 else 11
        name = self.transactional_id
        answer = self.produce(topic, data, partition=partition, version=version, transactional_id=name)
        while name_of(answer.error_code) == "NOT_ENOUGH_REPLICAS":  # the transaction before is still being ended
            answer = self.produce(topic, data, partition=partition, version=version, transactional_id=name)
        if not answer.error_code:
            self.sequences[key] = at + len(values)
        return name_of(answer.error_code)

    def end(self, *, commit: bool, identity: tuple[int, int] | None = None, until_done: bool = True) -> str:
        producer_id, epoch = identity or (self.producer_id, self.epoch)
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        ask = self.request_until_done if until_done else self.request
        answer = ask(ApiKey.END_TXN, 5 if self.version == 2 else 4, request)
        if not answer.error_code and self.version == 2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return name_of(answer.error_code)

    def commit(self) -> str:
        return self.end(commit=True)

    def abort(self) -> str:
        return self.end(commit=False)

    def add_offsets(self, group: str) -> str:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return name_of(self.request_until_done(ApiKey.ADD_OFFSETS_TO_TXN, 3, request).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, **member: Any) -> str:
        """TxnOffsetCommit for partition 0."""
        wanted = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=member.pop("metadata", "")
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[wanted])],
            **member,
        )
        answer = self.request_until_done(ApiKey.TXN_OFFSET_COMMIT, 5 if self.version == 2 else 3, request)
        return name_of(next(error_codes(answer)))

    def request_until_done(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Ask again while the markers of the transaction before are under way, as clients do."""
        while True:
            answer = self.request_until_loaded(api_key, version, request)
            if "CONCURRENT_TRANSACTIONS" not in [name_of(code) for code in error_codes(answer)]:
                return answer
