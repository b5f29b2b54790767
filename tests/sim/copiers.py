"""Transactional clients in the box: writers of both generations, some fighting over one id, and a committed reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from odradek.client.cluster import Cluster, check
from odradek.client.connection import Connection, UnreachableError
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.messages import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    offset_fetch_request,
    txn_offset_commit_request,
)
from odradek.protocol.messages import fetch_request as fetch
from odradek.protocol.messages import produce_request as produce
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.describe_transactions_response import DescribeTransactionsResponse
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.protocol.messages.fetch_response import FetchResponse, PartitionData
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.offset_fetch_response import OffsetFetchResponse
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.record.builder import build_batch
from odradek.record.control import ControlType, control_type
from odradek.record.reader import read_batches, read_records
from odradek.record.record import Record
from tests.sim.clients import RETRY_S, TIMEOUT_MS, Client, Recorder, hang_up, only_partition
from tests.sim.history import Identity, Marks, Operation, Outcome, Poll, Send
from tests.sim.lost_answers import LostAnswerError
from tests.sim.readers import Link, Reader
from tests.sim.world import World

TRANSACTION_TIMEOUT_MS = 4_000
ABORTS = 0.25
COMMITS_OFFSETS = 0.5
# The probability that a writer whose transaction failed goes on as the same producer.
GOES_ON = 0.5
# The number of times that a batch is sent again before the transaction is given up.
ATTEMPTS = 4
# This producer is fenced or expired: it must start again. Its open transaction is, or will be, aborted.
LOST = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class Ledger:
    """The values that all writers may have committed; readers may see no others."""

    def __init__(self) -> None:
        # Values whose commit was asked for; none else may be read.
        self.committing: set[int] = set()
        # Producers of the older protocol, which end many transactions under one epoch.
        self.old_producers: set[int] = set()


class TransactionalWriter(Client):
    """Writes unique values in transactions, and numbers them by a group's offset.

    Args:
        version: 2 speaks as clients since Kafka 4.0 do (KIP-890), 0 as those before.
        fights: others use the same transactional id: being fenced is no surprise.
        splits: it ends its transactions over other connections than those over which it begins them.
    """

    def __init__(
        self,
        world: World,
        name: str,
        process: int,
        recorder: Recorder,
        *,
        topic: str,
        partitions: int,
        transactional_id: str,
        version: int,
        fights: bool,
        splits: bool = False,
        values: Iterable[int],
        ledger: Ledger,
    ) -> None:
        super().__init__(world, name, process, recorder)
        self._ending = self.new_cluster() if splits else self.cluster
        self.timeout_ms = TRANSACTION_TIMEOUT_MS
        self._topic, self._partitions = topic, partitions
        self._id, self._version, self._fights = transactional_id, version, fights
        self._values = iter(values)
        self._ledger = ledger
        self._group = f"group-of-{name}"
        self._identity = (-1, -1)
        # The id and epoch of its last producer, if the next one is to be the same at a later epoch.
        self._goes_on_as = (-1, -1)
        # Transactional ids under which it was given a producer.
        self._given: set[str] = set()
        self._sequences: dict[int, int] = {}
        self._number = 0
        self._committed_number = -1
        self.stopping = False

    @property
    def producers(self) -> list[tuple[str, int]]:
        """Its transactional id, and its producer's; -1 where that is another one's, too, or begins again. None before
        it was given one."""
        return [(self._id, -1 if self._fights else self._identity[0])] if self._id in self._given else []

    async def run(self) -> None:
        """Transact until `stopping`; every transaction that was begun has an end that is known."""
        while not self.stopping:
            try:
                if self._identity[0] < 0:
                    await self._init()
                await self._transact()
            except OdradekError as error:
                if isinstance(error, ApiError) and error.code in LOST:
                    self._identity = (-1, -1)
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self.random.choice((0.0, 0.02, 0.2)))

    # -- the transaction --------------------------------------------------------------------------------------------

    async def _transact(self) -> None:
        self._number += 1
        number, with_offset = self._number, not self._fights and self.random.random() < COMMITS_OFFSETS
        operation = Operation(self.process, Outcome.INFO, [], invoked=self.recorder.invoke(), transactional=True)
        commit = self.random.random() >= ABORTS
        lost = False
        try:
            await self._write_all(operation)
            if with_offset:
                await self._commit_offset(number)
                await self._check_offset(stable=False)
        except OdradekError as error:
            commit = False
            lost = isinstance(error, ApiError) and error.code in LOST
        values = [step.value for step in operation.steps if isinstance(step, Send)]
        if not values and not with_offset:
            return
        if commit:
            self._ledger.committing.update(values)
        operation.ending = self.recorder.invoke()
        begun = self._version == 0 and bool(values)
        outcome = Outcome.FAIL if lost and not commit else await self._end(commit, begun=begun)
        operation.outcome = outcome
        self.recorder.complete(operation)
        if with_offset and outcome is Outcome.OK:
            self._committed_number = number
        if not self._fights and outcome is not Outcome.INFO:
            await self._check_offset(stable=True)
        if not commit or outcome is not Outcome.OK:
            self._start_again()
        elif self._version == 0 and self.random.random() < 0.2:
            await self._write_late()

    async def _write_all(self, operation: Operation) -> None:
        """Write the batches of one transaction. Raises OdradekError."""
        for _ in range(self.random.randint(1, 4)):
            await self._write(operation, self.random.randrange(self._partitions))

    async def _write(self, operation: Operation, partition: int) -> None:
        """One batch, again until its fate is known. Raises OdradekError."""
        if self._version == 0:
            await self._add_partition(partition)
        values = [next(self._values) for _ in range(self.random.choice((1, 1, 2, 5)))]
        sends = [Send(f"{self._topic}-{partition}", value) for value in values]
        operation.steps += sends
        sequence = self._sequences.get(partition, 0)
        request = self._produce_request(partition, values, sequence)
        for attempt in range(ATTEMPTS):
            try:
                self._stored(sends, await self._produce(partition, request))
                break
            except OdradekError as error:
                if (isinstance(error, ApiError) and error.code in LOST) or attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(RETRY_S)
        self._sequences[partition] = sequence + len(values)

    def _stored(self, sends: list[Send], base_offset: int) -> None:
        """A batch was acknowledged; its offset is -1 where it was there before, at an offset that it does not say."""
        if base_offset >= 0:
            for index, each in enumerate(sends):
                each.offset = base_offset + index

    def _produce_request(self, partition: int, values: list[int], sequence: int) -> produce.ProduceRequest:
        records = build_batch(
            [self._record_of(partition, value) for value in values],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
            transactional=True,
        )
        data = produce.PartitionProduceData(index=partition, records=records)
        return produce.ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[produce.TopicProduceData(name=self._topic, partition_data=[data])],
        )

    def _record_of(self, partition: int, value: int) -> Record:
        return Record(None, str(value).encode(), timestamp_ms=self.clock.now_ms())

    async def _produce(self, partition: int, request: produce.ProduceRequest) -> int:
        """The offset of the batch; -1 where it is a known one. Raises OdradekError."""
        connection = await self.leader_of(self._topic, partition)
        version = 12 if self._version == 2 else 11
        try:
            answer = only_partition(await self.request(connection, request, ProduceResponse, version))
        except OdradekError as error:
            hang_up(connection, error)
            raise
        if answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            check(answer.error_code, f"{self._topic}-{partition}")
        return int(answer.base_offset)

    async def _write_late(self) -> None:
        """A batch behind the end of its transaction, as a dead connection would bring it: it must open nothing.

        Before the last marker is written it would still belong to the transaction.
        """
        if not await self._is_complete():
            return
        partition = self.random.randrange(self._partitions)
        values = [next(self._values)]
        request = self._produce_request(partition, values, self._sequences.get(partition, 0))
        try:
            await self._produce(partition, request)
        except OdradekError:
            return
        self.problem(f"a batch behind the end of its transaction was stored in {self._topic}-{partition}")

    async def _is_complete(self) -> bool:
        """Whether the last transaction has all its markers, as soon as it has them."""
        request = DescribeTransactionsRequest(transactional_ids=[self._id])
        for _ in range(ATTEMPTS):
            connection = await self._coordinator(self._id, 1)
            (found,) = (await self.request(connection, request, DescribeTransactionsResponse)).transaction_states
            if found.transaction_state == "CompleteCommit":
                return True
            await asyncio.sleep(RETRY_S)
        return False

    async def _end(self, commit: bool, *, begun: bool = False) -> Outcome:
        """EndTxn, again until it is answered; OK and FAIL are certain."""
        asked = False
        while True:
            try:
                connection = await self._coordinator(self._id, 1, self._ending)
                request = EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=self._identity[0],
                    producer_epoch=self._identity[1],
                    committed=commit,
                )
                asked_before, asked = asked, True
                answer = await self._answer(connection, request, EndTxnResponse, 5 if self._version == 2 else 3)
                check(answer.error_code, self._id)
            except OdradekError as error:
                code = error.code if isinstance(error, ApiError) else None
                if code is ErrorCode.INVALID_TXN_STATE and begun and not self._fights:
                    self.problem("a transaction that was begun could not be ended")
                if code in LOST:
                    self._identity = (-1, -1)
                    return Outcome.INFO if commit and asked_before else Outcome.FAIL
                await asyncio.sleep(RETRY_S)
                continue
            if self._version == 2:
                self._moved_on((answer.producer_id, answer.producer_epoch))
            return Outcome.OK if commit else Outcome.FAIL

    def _moved_on(self, identity: tuple[int, int]) -> None:
        producer_id, epoch = self._identity
        if identity != (producer_id, epoch + 1) and not (identity[0] != producer_id and identity[1] == 0):
            self.problem(f"producer {producer_id} at epoch {epoch} goes on as {identity}")
        self._identity = identity
        self._sequences.clear()

    # -- the coordinators -------------------------------------------------------------------------------------------

    async def _coordinator(self, key: str, key_type: int, cluster: Cluster | None = None) -> Connection:
        cluster = cluster or self.cluster
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        found = (await cluster.request(request, FindCoordinatorResponse)).coordinators[0]
        check(found.error_code, key)
        return await cluster.connection_to(found.node_id)

    async def _answer(self, connection: Connection, request: Any, response: Any, version: int) -> Any:
        """An unknown fate must not take effect behind what follows: the connection ends first."""
        try:
            return await self.request(connection, request, response, version)
        except OdradekError as error:
            hang_up(connection, error)
            raise

    async def _asked_surely(self, key: str, key_type: int, request: Any, response: Any, version: int) -> Any:
        """The answer of a coordinator, which is asked again over a connection on which the first one was late; over a
        new one where epochs fence what is left of the old one (KIP-890). Raises OdradekError."""
        for _ in range(ATTEMPTS):
            try:
                return await self._answer(await self._coordinator(key, key_type), request, response, version)
            except (LostAnswerError, UnreachableError) as error:
                if self._version == 0 and not isinstance(error, LostAnswerError):
                    raise
            await asyncio.sleep(RETRY_S)
        return await self._answer(await self._coordinator(key, key_type), request, response, version)

    def _start_again(self) -> None:
        """It is unknown what was stored: the next transaction begins with sequences of its own, under another epoch of
        the same producer, as clients do since KIP-360, or as one that was restarted."""
        self._goes_on_as = self._identity if self.random.random() < GOES_ON else (-1, -1)
        self._identity = (-1, -1)

    async def _init(self) -> None:
        before, self._goes_on_as = self._goes_on_as, (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=before[0],
            producer_epoch=before[1],
        )
        invoked = self.recorder.invoke()
        answer = await self._asked_surely(self._id, 1, request, InitProducerIdResponse, 4)
        check(answer.error_code, self._id)
        self._identity = (answer.producer_id, answer.producer_epoch)
        if answer.producer_id == before[0] and answer.producer_epoch <= before[1]:
            self.problem(f"producer {before[0]} at epoch {before[1]} goes on at {answer.producer_epoch}")
        self._given.add(self._id)
        given = Identity(self._id, *self._identity)
        self.recorder.complete(Operation(self.process, Outcome.OK, [given], invoked=invoked))
        if self._version == 0:
            self._ledger.old_producers.add(answer.producer_id)
        self._sequences.clear()

    async def _add_partition(self, partition: int) -> None:
        request = add_partitions_to_txn_request.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=[
                add_partitions_to_txn_request.AddPartitionsToTxnTopic(name=self._topic, partitions=[partition])
            ],
        )
        for _ in range(10 * ATTEMPTS):
            answer = await self._asked_surely(self._id, 1, request, AddPartitionsToTxnResponse, 3)
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(RETRY_S)
        self._check_added(code)
        check(code, f"{self._topic}-{partition}")

    def _check_added(self, code: int) -> None:
        """Its present request is no late one: it waits for each answer, or ends the connection."""
        if code == ErrorCode.INVALID_TXN_STATE:
            self.problem("a partition could not be added to a transaction that goes on")

    async def _add_offsets(self) -> None:
        adding = add_offsets_to_txn_request.AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            group_id=self._group,
        )
        added = await self._asked_surely(self._id, 1, adding, AddOffsetsToTxnResponse, 3)
        self._check_added(added.error_code)
        check(added.error_code, self._id)

    async def _commit_offset(self, number: int) -> None:
        if self._version == 0:
            await self._add_offsets()
        wanted = txn_offset_commit_request.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=number, committed_metadata=None
        )
        request = txn_offset_commit_request.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._group,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            topics=[txn_offset_commit_request.TxnOffsetCommitRequestTopic(name=self._topic, partitions=[wanted])],
        )
        version = 5 if self._version == 2 else 3
        answer = await self._asked_surely(self._group, 0, request, TxnOffsetCommitResponse, version)
        check(answer.topics[0].partitions[0].error_code, self._group)

    async def _check_offset(self, *, stable: bool) -> None:
        """The offset of the last transaction that was committed, and of no other. Raises OdradekError."""
        request = offset_fetch_request.OffsetFetchRequest(
            group_id=self._group,
            topics=[offset_fetch_request.OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])],
            require_stable=stable,
        )
        for _ in range(10 * ATTEMPTS):
            connection = await self._coordinator(self._group, 0)
            response = await self.request(connection, request, OffsetFetchResponse, 7)
            check(response.error_code, self._group)
            answer = response.topics[0].partitions[0]
            if answer.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                break
            await asyncio.sleep(RETRY_S)
        check(answer.error_code, self._group)
        # Between the commit's answer and its marker the offset before is still the one that counts.
        if answer.committed_offset != self._committed_number and (stable or answer.committed_offset >= self._number):
            self.problem(
                f"offset {answer.committed_offset} is committed, not {self._committed_number}"
                f"{'' if stable else ', in the middle of a transaction'}"
            )


class CommittedReader(Reader):
    """Reads what is committed, as clients do: markers and records of aborted transactions are dropped."""

    def __init__(
        self, world: World, name: str, process: int, recorder: Recorder, *, topic: str, partitions: int, ledger: Ledger
    ) -> None:
        keys = [(topic, number) for number in range(partitions)]
        super().__init__(world, name, process, recorder, partitions=keys, sessions=False)
        self._ledger = ledger
        self._dropping: dict[tuple[str, int], set[int]] = {key: set() for key in keys}
        self._stable = dict.fromkeys(keys, 0)
        self._markers: dict[tuple[str, int], set[tuple[int, int]]] = {key: set() for key in keys}

    def _request(self, link: Link, wait_ms: int) -> fetch.FetchRequest:
        request = super()._request(link, wait_ms)
        request.isolation_level = 1
        return request

    def _process(self, response: FetchResponse, invoked: int, source: str) -> int:
        steps: list[Any] = []
        marks: list[Any] = []
        count = 0
        for topic in response.responses:
            for answer in topic.partitions:
                if answer.error_code:
                    self._leaders.pop((topic.topic, answer.partition_index), None)
                    continue
                found = self._committed(topic.topic, answer)
                name = f"{topic.topic}-{answer.partition_index}"
                if found:
                    steps.append(Poll(name, found))
                    count += len(found)
                marks += self.new_marks(Marks(name, source, -1, answer.high_watermark, answer.last_stable_offset))
        self._record(invoked, steps, marks)
        return count

    def _committed(self, topic: str, answer: PartitionData) -> list[tuple[int, int]]:  # noqa: C901 - a rule for each batch
        key = (topic, answer.partition_index)
        name = f"{topic}-{answer.partition_index}"
        if answer.last_stable_offset < self._stable[key]:
            self.problem(f"{name}: stable up to {self._stable[key]}, then only to {answer.last_stable_offset}")
        self._stable[key] = answer.last_stable_offset
        raw: Any = answer.records
        data = b"" if raw is None else bytes(raw)
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        dropping, found = self._dropping[key], []
        for position, header in read_batches(data):
            if header.last_offset < self.positions[key]:
                continue
            if header.last_offset >= answer.last_stable_offset:
                self.problem(f"{name}: offset {header.last_offset} was given, stable is {answer.last_stable_offset}")
            while aborted and aborted[0][0] <= header.last_offset:
                dropping.add(aborted.pop(0)[1])
            batch = data[position : position + header.size_bytes]
            if self.refuses(name, batch, header):
                break
            records = read_records(batch, header)
            if header.is_control and records:
                self._marker(key, name, header.producer_id, header.producer_epoch, control_type(records[0]))
            elif not header.is_control and header.producer_id not in dropping:
                found += [(each.offset, self._number_of(each)) for each in records]
            self.positions[key] = header.last_offset + 1
        for _, value in found:
            if value not in self._ledger.committing:
                self.problem(f"{name}: {value} was read, and its commit was not asked for")
        return found

    def _number_of(self, record: Record) -> int:
        return int(record.value or b"-1")

    def _marker(self, key: tuple[str, int], name: str, producer_id: int, epoch: int, kind: ControlType | None) -> None:
        if kind is ControlType.ABORT:
            self._dropping[key].discard(producer_id)
        # A partition that has forgotten a producer writes a marker again that is sent again; it ends nothing.
        forgets = "producer.id.expiration.ms" in self.world.settings
        seen = (producer_id, epoch) in self._markers[key]
        if seen and producer_id not in self._ledger.old_producers and not forgets:
            self.problem(f"{name}: producer {producer_id} has two markers of epoch {epoch}")
        self._markers[key].add((producer_id, epoch))


class FollowingReader(CommittedReader):
    """The last stable offset never goes back on one broker; a later leader may know less at first."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._stable_at: dict[tuple[tuple[str, int], str], int] = {}
        self._source = ""

    def _process(self, response: FetchResponse, invoked: int, source: str) -> int:
        self._source = source
        return super()._process(response, invoked, source)

    def _committed(self, topic: str, answer: PartitionData) -> list[tuple[int, int]]:
        key = (topic, answer.partition_index)
        self._stable[key] = self._stable_at.get((key, self._source), 0)
        found = super()._committed(topic, answer)
        self._stable_at[key, self._source] = self._stable[key]
        return found
