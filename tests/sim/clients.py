"""Clients in the box: the project's own protocol client on the simulated network, recording the responses.

Every client is one process of the history: its operations are sequential, and each ends as ok, failed for certain, or
unknown. Values are unique for each partition; a record's value is the number as text.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from random import Random
from typing import Any
from uuid import UUID

from odradek.client.cluster import Cluster, check
from odradek.client.connection import Connection
from odradek.common.errors import ApiError, ErrorCode, OdradekError
from odradek.common.ports import ProtocolFactory
from odradek.protocol.api_key import ApiKey
from odradek.protocol.messages import produce_request as produce
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.record.batch import BatchHeader, crc_is_valid
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.sim.clock import SimClock
from tests.sim.history import Operation, Outcome, Send
from tests.sim.lost_answers import LostAnswerError
from tests.sim.network import SimNetwork
from tests.sim.world import PORT, World

TIMEOUT_MS = 3_000
RETRY_S = 0.1
# The last version that names topics rather than ids.
PRODUCE_VERSION = 12
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
# The probability that a producer gets a new id before it sends.
NEW_PRODUCER = 0.02
# Bytes of key beside a record's value, so that batches span sectors of the disk and segments of the network.
PADDING_BYTES = (0, 0, 0, 0, 30, 600, 3000)
# Error codes with which a broker has certainly written nothing. NOT_LEADER_OR_FOLLOWER is no such: a leadership may end
# while an appended batch waits for its acknowledgement.
REFUSED = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


class Recorder:
    """The history, in the order in which operations end, and other problems that were found on the way."""

    def __init__(self) -> None:
        self.history: list[Operation] = []
        self.problems: list[str] = []
        self._events = 0

    def invoke(self) -> int:
        """A moment at which an operation begins."""
        self._events += 1
        return self._events

    def complete(self, operation: Operation) -> None:
        """An operation ends now."""
        self._events += 1
        operation.completed = self._events
        self.history.append(operation)


class ClientNetwork(SimNetwork):
    """The network of a client, which remembers its connections."""

    def __init__(self, world: World, host: str) -> None:
        super().__init__(world.wires, host)
        self._world = world
        self.connections: list[Connection] = []
        # Connection -> the process of a machine at its other end.
        self._processes: dict[Connection, str] = {}

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        transport, protocol = await super().connect(factory, host, port, tls=tls)
        assert isinstance(protocol, Connection)
        self.connections.append(protocol)
        machine = self._world.machines.get(host)
        self._processes[protocol] = f"{host}, start {machine.starts}" if machine else host
        return transport, protocol

    def process_at(self, connection: Connection) -> str:
        """The process that answers on a connection, as the history calls it."""
        return self._processes[connection]

    def violations(self) -> list[str]:
        """The ends of connections that the broker caused: responses out of order, or malformed bytes."""
        ends = [str(connection.lost) for connection in self.connections if connection.lost is not None]
        return [end for end in ends if "does not speak" in end]


class Client:
    """A host of its own, with connections to the leaders."""

    def __init__(self, world: World, name: str, process: int, recorder: Recorder) -> None:
        self.world = world
        self.name = name
        self.process = process
        self.recorder = recorder
        self.random = Random(world.random.getrandbits(64))
        self.clock = SimClock(world.loop)
        self.network = ClientNetwork(world, name)
        self.cluster = self.new_cluster()
        self._leader_epochs: dict[tuple[UUID, int], int] = {}

    def new_cluster(self) -> Cluster:
        """The cluster as a client sees it, over connections of its own."""
        return Cluster(
            self.network,
            self.clock,
            [(machine.name, PORT) for machine in self.world.machines.values() if machine.is_broker],
            client_id=self.name,
            timeout_ms=TIMEOUT_MS,
        )

    async def leader_of(self, topic: str, partition: int) -> Connection:
        """A connection to the leader. Raises OdradekError.

        A broker that has missed an election is not believed, as every client since KIP-320 does it.
        """
        described = await self.cluster.topic(topic)
        for each in described.partitions:
            if each.partition_index == partition:
                check(each.error_code, f"{topic}-{partition}")
                key = (described.topic_id, partition)
                if each.leader_epoch < self._leader_epochs.get(key, -1):
                    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}: metadata names a past leader")
                self._leader_epochs[key] = each.leader_epoch
                return await self.cluster.connection_to(each.leader_id)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")

    async def request(
        self,
        connection: Connection,
        request: Any,
        response: Any,
        version: int | None = None,
        *,
        timeout_s: float = TIMEOUT_MS / 1000,
    ) -> Any:
        """Send a request. Raises OdradekError; a broken connection is forgotten by the cluster."""
        answer = await connection.request(request, response, timeout_s=timeout_s, version=version)
        self._may_be_late(request)
        return answer

    def _may_be_late(self, request: Any) -> None:
        """Raises LostAnswerError: the answer to a request came a moment after its timeout."""
        key = ApiKey(request.KEY)
        if self.world.wires.loses(key):
            self.world.count("late answer")
            raise LostAnswerError(f"the answer to {key.name} came too late")

    def refuses(self, name: str, batch: bytes, header: BatchHeader) -> bool:
        """Whether a batch is not what was written. Such answers are not believed, and asked for again.

        Brokers look at the checksum before they serve; a bit may flip in what is read after that.
        """
        if crc_is_valid(batch, header):
            return False
        if not self.world.swarm.disk.flipped_bit:
            self.problem(f"{name}: the batch at offset {header.base_offset} has a wrong checksum")
        self.world.count("damaged answer")
        return True

    def problem(self, text: str) -> None:
        """A violation, reported at the end of the run."""
        self.world.report(f"{self.name}: {text}")
        self.recorder.problems.append(f"{self.name}: {text}")


class Producer(Client):
    """Writes unique values to all partitions of a topic.

    An idempotent one sends several batches before the first is answered, and all of them again, in the same order and
    with the same sequences, until all are acknowledged. A plain one sends each batch once.
    """

    def __init__(
        self,
        world: World,
        name: str,
        process: int,
        recorder: Recorder,
        *,
        partitions: list[tuple[str, int]],
        idempotent: bool,
        values: Iterable[int],
        acks: tuple[int, ...] = (1, -1),
    ) -> None:
        """`acks` are what a plain producer asks for, one of them for each batch; an idempotent one asks for -1."""
        super().__init__(world, name, process, recorder)
        self._partitions = partitions
        self._idempotent = idempotent
        self._values = iter(values)
        self._acks = acks
        self._producer = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}
        self.stopping = False

    async def run(self) -> None:
        """Produce until `stopping`; an idempotent producer returns when it knows the fate of all that it sent."""
        while not self.stopping:
            topic, partition = self.random.choice(self._partitions)
            if self._idempotent and self.random.random() < NEW_PRODUCER:
                # The client begins again like a restarted one: all records that it sent are known to be stored.
                self._producer = (-1, -1)
                self._sequences.clear()
            try:
                if self._idempotent:
                    await self._send_surely(topic, partition, [self.batch() for _ in range(self.random.randint(1, 4))])
                else:
                    await self.send_once(topic, partition, self.batch())
            except OdradekError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.01, 0.1, 0.5)))

    def batch(self) -> list[int]:
        return [next(self._values) for _ in range(self.random.choice((1, 1, 1, 2, 5, 20)))]

    def _encode(self, values: list[int], sequence: int) -> bytes:
        now_ms = self.clock.now_ms()
        return build_batch(
            [Record(self._padding(), str(value).encode(), timestamp_ms=now_ms) for value in values],
            compression=self.random.choice(CODECS),
            producer_id=self._producer[0] if sequence >= 0 else -1,
            producer_epoch=self._producer[1] if sequence >= 0 else -1,
            base_sequence=sequence,
        )

    def _padding(self) -> bytes | None:
        size = self.random.choice(PADDING_BYTES)
        return self.random.randbytes(size) if size else None

    def _request(self, topic: str, partition: int, records: bytes, acks: int) -> produce.ProduceRequest:
        data = produce.PartitionProduceData(index=partition, records=records)
        return produce.ProduceRequest(
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
        )

    async def send_once(self, topic: str, partition: int, values: list[int]) -> bool:
        """Send a batch without a sequence; returns whether it was acknowledged. Raises OdradekError."""
        connection = await self.leader_of(topic, partition)
        operation = self._operation(topic, partition, values)
        request = self._request(topic, partition, self._encode(values, -1), self.random.choice(self._acks))
        try:
            answer = await connection_answer(connection, request)
        except OdradekError:
            self.recorder.complete(operation)
            raise
        self._finish(operation, answer.error_code, answer.base_offset)
        return operation.outcome is Outcome.OK

    def _operation(self, topic: str, partition: int, values: list[int]) -> Operation:
        steps: list[Any] = [Send(f"{topic}-{partition}", value) for value in values]
        return Operation(self.process, Outcome.INFO, steps, invoked=self.recorder.invoke())

    def _finish(self, operation: Operation, error_code: int, base_offset: int) -> None:
        if error_code == ErrorCode.NONE:
            operation.outcome = Outcome.OK
            for index, step in enumerate(operation.steps):
                assert isinstance(step, Send)
                step.offset = base_offset + index if base_offset >= 0 else None
        elif error_code in REFUSED:
            operation.outcome = Outcome.FAIL
        self.recorder.complete(operation)

    async def _send_surely(self, topic: str, partition: int, batches: list[list[int]]) -> None:
        while self._producer[0] < 0:
            await self._get_producer_id()
        key = (topic, partition)
        window: list[tuple[Operation, bytes]] = []
        for values in batches:
            sequence = self._sequences.get(key, 0)
            window.append((self._operation(topic, partition, values), self._encode(values, sequence)))
            self._sequences[key] = sequence + len(values)
        while window:
            try:
                await self._send_window(topic, partition, window)
            except OdradekError as error:
                if isinstance(error, ApiError) and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    self.problem(
                        f"{topic}-{partition}: sequence refused, though all before it was acknowledged: {error}"
                    )
                    for operation, _ in window:
                        self.recorder.complete(operation)
                    self.stopping = True
                    return
                await asyncio.sleep(RETRY_S)

    async def _send_window(self, topic: str, partition: int, window: list[tuple[Operation, bytes]]) -> None:
        """Send the whole window at once and read the responses in order; raise the error of the first that has one."""
        connection = await self.leader_of(topic, partition)
        sent = [connection.send(self._request(topic, partition, records, -1), PRODUCE_VERSION) for _, records in window]
        try:
            for number, future in enumerate(sent, 1):
                async with asyncio.timeout(TIMEOUT_MS / 1000):
                    answer = only_partition(await future)
                await self._may_time_out(sent[number:])
                code = ErrorCode(answer.error_code)
                if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    if code is ErrorCode.KAFKA_STORAGE_ERROR:
                        await self._check_sent_behind(f"{topic}-{partition}", sent[number:])
                    raise ApiError(code, answer.error_message or "")
                operation, _ = window.pop(0)
                self._finish(operation, 0, answer.base_offset if code is ErrorCode.NONE else -1)
        except LostAnswerError:
            raise  # nothing is under way on this connection any more
        except (OdradekError, TimeoutError) as error:
            # Only a new connection keeps the order: answers on this one may still come.
            connection.close()
            for future in sent:
                future.cancel()
            raise error if isinstance(error, OdradekError) else ApiError(ErrorCode.REQUEST_TIMED_OUT) from None

    async def _may_time_out(self, sent: list[asyncio.Future[Any]]) -> None:
        """Raise LostAnswerError if a response is late, once all requests behind it are answered: the rest of the window
        is sent again over the same connection."""
        if self.world.wires.loses(ApiKey.PRODUCE):
            self.world.count("late answer")
            for future in sent:
                async with asyncio.timeout(TIMEOUT_MS / 1000):
                    await future
            raise LostAnswerError("the answer to PRODUCE came too late")

    async def _check_sent_behind(self, name: str, sent: list[asyncio.Future[Any]]) -> None:
        """Check that batches sent behind one that found no space are not refused as out of order: on that error a
        client takes a new epoch, and sends batches again that other leaders have."""
        for future in sent:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                answer = only_partition(await future)
            self.world.count("behind a full disk")
            if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self.problem(f"{name}: {answer.error_message}, behind a batch for which there was no space")

    async def _get_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None)
        answer = await self.request(await self.cluster.any_connection(), request, InitProducerIdResponse)
        check(answer.error_code, "producer id")
        self._producer = (answer.producer_id, answer.producer_epoch)


def hang_up(connection: Connection, error: OdradekError) -> None:
    """Close a connection whose request may still be carried out; one whose response is only late stays open."""
    if not isinstance(error, LostAnswerError):
        connection.close()


async def connection_answer(connection: Connection, request: produce.ProduceRequest) -> Any:
    """The answer for the only partition of a Produce. Raises OdradekError."""
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            return only_partition(await connection.send(request, PRODUCE_VERSION))
    except TimeoutError:
        connection.close()
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None


def only_partition(response: Any) -> Any:
    """The answer for the only partition that was asked for."""
    return response.responses[0].partition_responses[0]
