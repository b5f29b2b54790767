"""Three replicas of a partition in a random walk: messages come late or never, leaders change, brokers die.

The walk uses the real partitions and logs on a disk, fetchers, the handler of Fetch with its sessions, in-sync sets,
and the controller's state machine. Only the tasks and sockets between them are replaced by steps that a seed chooses,
so that a response may arrive after two changes of leaders. The records that any leader has shown as committed must be
in the log of every later leader; in the end everything is healed, and all replicas must be the same, byte for byte.
"""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from odradek.common.errors import ApiError, ErrorCode
from odradek.common.metrics import Metrics
from odradek.common.real_io import RealDisk
from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.protocol.messages.list_offsets_response import ListOffsetsResponse
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.record.reader import read_batches
from odradek.replica.config import FetcherConfig
from odradek.replica.fetcher import EARLIEST_LOCAL, LATEST, Fetcher
from odradek.replica.followers import handle_alter_partition, maybe_shrink
from odradek.replica.in_sync import IsrChange, outcome_of
from odradek.replica.manager import ReplicaManager
from odradek.replica.partition import Partition
from odradek.server.context import RequestContext
from odradek.server.fetch_session_cache import FetchSessionCache, FetchSessionConfig
from odradek.server.handlers import fetch, list_offsets
from odradek.server.network.listeners import ListenerSpec
from odradek.server.startup.honoured_settings import honoured_settings
from odradek.settings.broker import BrokerSettings, resolve
from odradek.settings.config_providers import Sources
from odradek.settings.node import zero_config
from tests.support.models.batches import NOW_MS, batch, header_of
from tests.support.models.controller_harness import CLUSTER, Harness
from tests.support.nodes.services import services_with

TOPIC = "t"
LAG_MS = 1000


class NoSyncDisk(RealDisk):
    """A disk that syncs nothing, as no machine loses power here."""

    def __init__(self) -> None:
        super().__init__(workers=1)

    def sync_dir(self, path: Path) -> None:
        pass


@dataclass
class Exchange:
    """A request on its way to a leader, then its answer on its way back."""

    request: Any
    answer: Any = None
    served: bool = False


@functools.cache
def settings() -> BrokerSettings:
    """The parts that a broker of the walk starts with, as far as handlers use them."""
    return resolve(zero_config({}), Sources({}, lambda path: ""), honoured=honoured_settings())


class WalkBroker:
    """One broker: partitions, a fetcher for each leader, and the requests that are under way."""

    def __init__(self, walk: ReplicaWalk, broker_id: int, directory: Path) -> None:
        self.walk = walk
        self.broker_id = broker_id
        self.directory = directory
        self.disk = NoSyncDisk()
        self.running = False
        self.epoch = -1
        self.held_at: Any = None
        self.held: dict[int, tuple[int, int]] = {}

    # The services that a replica manager is attached to

    def add_partition(self, partition: Partition) -> None:
        self.remove_partition(partition)
        made = Fetcher(
            FetcherConfig(wait_max_ms=0, max_bytes=self.walk.random.choice([1, 300, 2**20])), broker_id=self.broker_id
        )
        self.fetchers.setdefault(partition.leader_id, made).add_partition(partition)

    def remove_partition(self, partition: Partition) -> None:
        for fetcher in self.fetchers.values():
            fetcher.remove_partition((partition.topic_id, partition.partition_id))

    def request(self, partition: Partition) -> None:
        self.isr_wanted = True

    # Life

    def start(self) -> None:
        config = LogConfig(min_insync_replicas=self.walk.min_insync)
        self.logs = LogManager(self.disk, cast(Any, self.walk), [self.directory], config, random.Random(1))
        self.logs.lock_dirs()
        self.logs.load()
        self.fetchers: dict[int, Fetcher] = {}
        self.exchanges: dict[int, Exchange] = {}
        self.isr_wanted = False
        self.isr_asked: tuple[IsrChange, AlterPartitionRequest, Any] | None = None
        self.replicas = ReplicaManager(
            self.broker_id, self.logs, fetch_max_bytes=2**20, monotonic_ms=self.walk.monotonic_ms
        )
        self.replicas.attach(cast(Any, self), cast(Any, self))
        self.publisher = MetadataPublisher(CLUSTER)
        self.publisher.subscribe(self.replicas.on_metadata)
        sessions = FetchSessionCache(FetchSessionConfig(), self.walk.random, self.walk.monotonic_ms)
        self.services = services_with(
            node_id=self.broker_id,
            settings=settings(),
            clock=self.walk,
            metrics=Metrics(),
            publisher=self.publisher,
            log_manager=self.logs,
            replicas=self.replicas,
            fetch_sessions=sessions,
        )
        self.running = True

    def stop(self) -> None:
        """Kill the broker with SIGKILL: the page cache stays, and sent messages are still delivered."""
        self.running = False
        self.walk.strays += [(leader, each.request) for leader, each in self.exchanges.items() if not each.served]
        self.logs.unlock()

    @property
    def partition(self) -> Partition | None:
        return self.replicas.partition(TOPIC, 0) if self.running else None

    @property
    def leads(self) -> Partition | None:
        """The partition, where this broker believes that it leads."""
        partition = self.partition
        return partition if partition is not None and partition.is_leader else None

    def serve(self, request: Any, handler: Callable[..., Any], version: int) -> Any:
        context = RequestContext(self.services, cast(Any, self), 0, version, 0, "")
        return handler(context, request)

    @property
    def listener(self) -> ListenerSpec:
        """The listener of a connection, over which the requests of the other replicas come in."""
        return ListenerSpec(settings().inter_broker_listener_name, "127.0.0.1", 0)


class ReplicaWalk:
    """The walk; `step` goes one step, `heal` ends all trouble and checks."""

    def __init__(self, directory: Path, seed: int, *, min_insync: int = 1) -> None:
        self.random = random.Random(seed)
        self.now = 100_000
        self.min_insync = min_insync
        self.harness = Harness(seed, min_insync_replicas=min_insync)
        self.committed: dict[int, tuple[int, int]] = {}
        self.brokers = [WalkBroker(self, each, directory / str(each)) for each in (1, 2, 3)]
        self.count = 0
        self.strays: list[tuple[int, FetchRequest]] = []
        self.checked: Any = None
        for broker in self.brokers:
            broker.start()
            self._register(broker)
        self.harness.topic(TOPIC, [1, 2, 3])
        for broker in self.brokers:
            self._publish(broker)

    def now_ms(self) -> int:
        return NOW_MS + self.now

    def monotonic_ms(self) -> int:
        return self.now

    def close(self) -> None:
        for broker in self.brokers:
            if broker.running:
                broker.stop()
            broker.disk.close()

    # Steps

    def step(self) -> None:
        """Something happens."""
        self.now += self.random.randrange(30)
        broker = self.random.choice(self.brokers)
        kinds: list[tuple[int, Callable[[WalkBroker], None]]] = [
            (30, self._append),
            (70, self._exchange),
            (8, self._publish_some),
            (3, self._stray),
            (10, self._isr),
            (3, self._shrink),
            (2, self._fence),
            (4, self._move),
            (4, self._unfence),
            (1, self._crash),
            (4, self._restart),
            (1, self._lag),
        ]
        chosen = self.random.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        chosen(broker)
        self.check()

    def _register(self, broker: WalkBroker) -> None:
        self.harness.now_ms += 60_000
        broker.epoch = self.harness.register(broker.broker_id, len(self.harness.log))
        self.harness.beat(broker.broker_id)

    def _publish(self, broker: WalkBroker, count: int = 10**9) -> None:
        if broker.running:
            known = broker.publisher.image.offset + 1
            broker.publisher.committed(list(enumerate(self.harness.log))[known : known + count], 1)

    def _publish_some(self, broker: WalkBroker) -> None:
        self._publish(broker, self.random.choice([1, 2, 10**9]))

    def _append(self, broker: WalkBroker) -> None:
        partition = broker.leads
        if partition is not None:
            self.count += 1
            data = bytearray(batch(*(b"%d" % self.count for _ in range(self.random.randrange(1, 4)))))
            acks = self.random.choice([1, -1])
            try:
                partition.append_as_leader([data], [header_of(bytes(data))], required_acks=acks, now_ms=self.now_ms())
            except ApiError as error:
                assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS, error

    def _exchange(self, broker: WalkBroker) -> None:
        """One stage of one exchange: a request leaves, reaches the leader, or its answer comes back; some are lost."""
        if not broker.running:
            return
        for leader_id, fetcher in tuple(broker.fetchers.items()):
            leader = self.brokers[leader_id - 1]
            exchange = broker.exchanges.get(leader_id)
            if exchange is None:
                request = fetcher.next_request(self.now, broker_epoch=broker.epoch)
                if request is not None:
                    broker.exchanges[leader_id] = Exchange(request)
                elif leader.running and fetcher.has_out_of_range:
                    self._fetch_leader_offsets(fetcher, leader)
            elif self.random.random() < 0.02 or (not exchange.served and not leader.running):
                del broker.exchanges[leader_id]
                if not exchange.served:
                    self.strays.append((leader_id, exchange.request))
                fetcher.failed(self.now, "lost")
            elif not exchange.served:
                exchange.answer = self._serve(leader, exchange.request)
                exchange.served = True
            else:
                del broker.exchanges[leader_id]
                consumed = fetcher.received(exchange.answer, now_ms=self.now, wall_ms=self.now_ms())
                assert not consumed.failures

    def _stray(self, broker: WalkBroker) -> None:
        """Messages that a dead broker, or one that has given up waiting, had sent arrive after all."""
        for stray in tuple(self.strays):
            if stray[0] == broker.broker_id and broker.running:
                self.strays.remove(stray)
                self._serve(broker, stray[1])
                return

    def _serve(self, leader: WalkBroker, request: FetchRequest) -> FetchResponse:
        response = leader.serve(request, fetch.handle, 17)
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            for each in topic.partitions:
                chunks = getattr(each.records, "chunks", None)
                each.records = b"".join(chunk.read() for chunk in chunks) if chunks else b""
        return response

    def _fetch_leader_offsets(self, fetcher: Fetcher, leader: WalkBroker) -> None:
        answers = []
        lost: list[Any] = []
        for timestamp in (EARLIEST_LOCAL, LATEST):
            asked = fetcher.offsets_request(timestamp)
            assert asked is not None
            request, lost = asked
            assert isinstance(request, ListOffsetsRequest)
            answer = leader.serve(request, list_offsets.handle, 10)
            assert isinstance(answer, ListOffsetsResponse)
            answers.append(answer)
        fetcher.handle_offsets(lost, answers[0], answers[1], now_ms=self.now)

    def _isr(self, broker: WalkBroker) -> None:
        """A leader's change of its in-sync set is asked for, decided, or answered; answers may be lost."""
        partition = broker.partition
        if partition is None:
            return
        if broker.isr_asked is None:
            change = partition.in_sync.pending
            if broker.isr_wanted and change is not None and partition.is_leader:
                broker.isr_asked = (change, self._alter_request(broker, partition, change), None)
            broker.isr_wanted = False
            return
        change, request, answer = broker.isr_asked
        if answer is None:
            try:
                answer = self.harness.do(self.harness.machine.partitions.alter_partition(request))
            except ApiError:
                answer = "refused"
            lost = self.random.random() < 0.2
            broker.isr_asked = None if lost else (change, request, answer)
            broker.isr_wanted = lost
            return
        broker.isr_asked = None
        if answer == "refused":
            broker.isr_wanted = True
            return
        reported = answer.topics[0].partitions[0]
        handle_alter_partition(
            partition,
            change,
            outcome_of(reported.error_code),
            isr=tuple(reported.isr),
            partition_epoch=reported.partition_epoch,
            now_ms=self.now,
        )

    def _alter_request(self, broker: WalkBroker, partition: Partition, change: IsrChange) -> AlterPartitionRequest:
        own = broker.epoch
        members = [
            BrokerState(broker_id=each, broker_epoch=own if each == broker.broker_id else epoch)
            for each, epoch in zip(change.isr, change.broker_epochs, strict=True)
        ]
        data = PartitionData(
            leader_epoch=change.leader_epoch, partition_epoch=change.partition_epoch, new_isr_with_epochs=members
        )
        topic = TopicData(topic_id=partition.topic_id, partitions=[data])
        return AlterPartitionRequest(broker_id=broker.broker_id, broker_epoch=own, topics=[topic])

    def _shrink(self, broker: WalkBroker) -> None:
        partition = broker.leads
        if partition is not None:
            maybe_shrink(partition, now_ms=self.now, max_lag_ms=LAG_MS)

    def _lag(self, broker: WalkBroker) -> None:
        self.now += 2 * LAG_MS

    def _fence(self, broker: WalkBroker) -> None:
        known = self.harness.state.brokers[broker.broker_id]
        if not known.fenced:
            for record in self.harness.machine.brokers.fence(known):
                self.harness.machine.replay(record, len(self.harness.log))
                self.harness.log.append(record)

    def _move(self, broker: WalkBroker) -> None:
        """Move leadership inside the in-sync set, as for a preferred leader: the old leader keeps its log and place."""
        state = self.harness.partition(TOPIC)
        fenced = self.harness.state.brokers[broker.broker_id].fenced
        if broker.broker_id in state.isr and broker.broker_id != state.leader and not fenced:
            topic_id = self.harness.state.topic_ids[TOPIC]
            record = PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=broker.broker_id)
            self.harness.machine.replay(record, len(self.harness.log))
            self.harness.log.append(record)

    def _unfence(self, broker: WalkBroker) -> None:
        if broker.running:
            self.harness.beat(broker.broker_id)

    def _crash(self, broker: WalkBroker) -> None:
        if not broker.running:
            return
        broker.stop()
        # A disk may be lost with the broker, while others have what is committed.
        isr = set(self.harness.partition(TOPIC).isr)
        if self.random.random() < 0.5 and len(isr - {broker.broker_id}) >= 1:
            self._fence(broker)
            if len(set(self.harness.partition(TOPIC).isr) - {broker.broker_id}) >= 1:
                shutil.rmtree(broker.directory)

    def _restart(self, broker: WalkBroker) -> None:
        if not broker.running:
            broker.start()
            self._register(broker)
            # A broker decides nothing before it has seen its own registration.
            self._publish(broker)

    # Checks

    def check(self) -> None:
        """Committed records that leaders show are remembered, and equal those of earlier leaders."""
        grown = False
        for broker in self.brokers:
            partition = broker.leads
            if partition is not None:
                log = partition.log
                held = self._held(broker)
                for offset in range(log.high_watermark):
                    grown = grown or offset not in self.committed
                    known = self.committed.setdefault(offset, held[offset])
                    assert known == held[offset], f"committed record {offset} is another one on {broker.broker_id}"
        newest = self.harness.partition(TOPIC)
        state = (newest, grown, [broker.partition and broker.partition.log.log_end_offset for broker in self.brokers])
        if state == self.checked:
            return
        self.checked = state
        for broker in self.brokers:
            if broker.partition is not None and broker.broker_id in newest.isr:
                held = self._held(broker)
                for offset, known in self.committed.items():
                    assert held.get(offset) == known, f"committed record {offset} is not on {broker.broker_id}, in sync"

    def _held(self, broker: WalkBroker) -> dict[int, tuple[int, int]]:
        log = cast(Partition, broker.partition).log
        state = (log.log_end_offset, log.epochs.entries(), log)
        if broker.held_at != state:
            broker.held_at, broker.held = state, contents(log)
        return broker.held

    def heal(self) -> None:
        """Everyone runs and hears of everything: all replicas become one, in sync, with all that was committed."""
        for broker in self.brokers:
            self._restart(broker)
        for _ in range(400):
            self.now += 20
            for broker in self.brokers:
                self._unfence(broker)
                self._publish(broker)
                self._exchange_surely(broker)
                self._isr(broker)
                self.check()
            if self._is_whole():
                return
        raise AssertionError(
            f"no progress: {self.harness.partition(TOPIC)} {[self._reported(b) for b in self.brokers]}"
        )

    def _exchange_surely(self, broker: WalkBroker) -> None:
        broker.isr_wanted = True
        for _ in range(3):
            self._exchange(broker)

    def _reported(self, broker: WalkBroker) -> str:
        partition = broker.partition
        assert partition is not None
        states = [(leader, [each.state for each in fetcher]) for leader, fetcher in broker.fetchers.items()]
        log = partition.log
        return f"{broker.broker_id}: {log.high_watermark}/{log.log_end_offset} {log.epochs.entries()} {states}"

    def _is_whole(self) -> bool:
        logs = [cast(Partition, broker.partition).log for broker in self.brokers]
        ends = {(log.log_end_offset, log.high_watermark) for log in logs}
        if len(ends) > 1 or logs[0].high_watermark != logs[0].log_end_offset:
            return False
        if len(self.harness.partition(TOPIC).isr) < 3:
            return False
        assert len({file_bytes(log) for log in logs}) == 1, "replicas differ"
        assert len({tuple(written_epochs(log)) for log in logs}) == 1, "epoch caches differ"
        return True


def file_bytes(log: Log) -> bytes:
    """The bytes of all segments of a log, one after the other."""
    return b"".join(path.read_bytes() for path in sorted(log.directory.glob("*.log")))


def written_epochs(log: Log) -> list[tuple[int, int]]:
    """(epoch, start) of the epochs with records: a leader that wrote nothing has one more."""
    return [(epoch, start) for epoch, start in log.epochs.entries() if start < log.log_end_offset]


def contents(log: Log) -> dict[int, tuple[int, int]]:
    """The epoch and the checksum of the batch at each offset."""
    held = {}
    for _, header in read_batches(file_bytes(log)):
        for offset in range(header.base_offset, header.last_offset + 1):
            held[offset] = (header.partition_leader_epoch, header.crc)
    return held
