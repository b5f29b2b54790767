"""Failback of an old source: each leader writes records that the new source lacks to a file, and cuts its log.

Source: ADR 0021.
Nothing is mirrored until all replicas of a partition are cut, and the settings say so. Another leader may repeat each
step: nothing is appended meanwhile, so logs only become shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.client.epochs import epoch_end
from odradek.client.groups import EARLIEST, list_offsets
from odradek.common.errors import ApiError, ErrorCode, OdradekError, ProtocolError, StorageError
from odradek.common.log_lines import get_logger
from odradek.link.agreement import Agreement, agree
from odradek.link.measures import NO_REASON, Why, why_of
from odradek.link.same_topics import same_topics
from odradek.log.failback_file import failback_path, newest_failback_file, write_failback_file
from odradek.replica.failback import Below, may_be_compacted, replicas_not_truncated, scan_below, truncate_leader
from odradek.settings.links import MirrorState, cut_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odradek.client.cluster import Cluster
    from odradek.common.ports import Clock
    from odradek.link.mirroring import MirroredPartition
    from odradek.link.topics import MirrorTopicManager
    from odradek.log.log import Log
    from odradek.replica.manager import ReplicaManager
    from odradek.replica.partition import Partition
    from odradek.settings.links import Link, Mirror

_log = get_logger("link.failback")


@dataclass(frozen=True, slots=True)
class Cut:
    """A completed cut of a leader's log.

    Attributes:
        offset: the new log end offset (exclusive).
        leader_epoch: the epoch of the leader.
        file, size_bytes: the failback file; None and 0 if no batches were removed.
    """

    offset: int
    leader_epoch: int
    file: Path | None = None
    size_bytes: int = 0

    def shown(self, broker_id: int) -> dict[str, Any]:
        """The fields for `links describe`."""
        file = None if self.file is None else str(self.file)
        return {"offset": self.offset, "broker": broker_id, "file": file, "bytes": self.size_bytes}


@dataclass(frozen=True, slots=True)
class _Written:
    """A complete failback file, and the state of the log that it has; the log may not be cut if the ISR has changed."""

    log: Log
    first: int
    epoch: int
    end: int
    file: Path
    size_bytes: int


class Failback:
    """The failbacks of the partitions of one link that this broker leads."""

    def __init__(
        self, clock: Clock, replicas: ReplicaManager, topic_manager: Callable[[], MirrorTopicManager | None]
    ) -> None:
        self._clock = clock
        self._replicas = replicas
        self._topic_manager = topic_manager
        self._written: dict[str, _Written] = {}
        # Partition -> log, leader epoch and offset, and the result of the scan below that offset.
        self._below: dict[str, tuple[tuple[Log, int, int], Below]] = {}

    async def round(
        self, source: Cluster, link: Callable[[], Link], partitions: Callable[[], list[MirroredPartition]]
    ) -> None:
        """Try the next step of each partition; errors are retried by the next round."""
        for each in partitions():
            mirror = link().mirrors.get(each.partition.topic)
            if mirror is None or mirror.state is not MirrorState.FAILBACK:
                continue
            if each.stopped or each.partition.partition_id in mirror.cuts or not _may_cut(each):
                continue
            try:
                await self._step(source, link, mirror, each)
            except StorageError as error:
                self._replicas.storage_failed(error)
            except (OdradekError, OSError) as error:
                each.reason = each.reason.followed_by(why_of(error), str(error), self._clock.now_ms())

    async def _step(self, source: Cluster, link: Callable[[], Link], mirror: Mirror, each: MirroredPartition) -> None:
        partition = each.partition
        if each.cut is None or each.cut.leader_epoch != partition.leader_epoch:
            agreed, first_open = await self._agree(source, mirror, each)
            if mirror.topic not in await same_topics(source, link(), [mirror.topic]):
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{mirror.topic} is another topic at the source now")
            if not await self._cut(mirror, each, agreed, first_open):
                return
        assert each.cut is not None, "it was cut"
        if uncut := replicas_not_truncated(partition):
            text = f"cut to {each.cut.offset}; replicas {uncut} are to be cut, and do not fetch yet"
            each.reason = each.reason.followed_by(Why.FAILBACK, text, self._clock.now_ms())
        else:
            await self._set(mirror, f"cut.{partition.partition_id}", cut_text(each.cut.offset, each.cut.leader_epoch))
            each.reason = NO_REASON

    async def _set(self, mirror: Mirror, what: str, text: str) -> None:
        """Set a setting of the mirror. Raises ApiError if the failback has ended, or another broker leads."""
        topic_manager = self._topic_manager()
        if topic_manager is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "there is no metadata yet")
        await topic_manager.set({mirror.key(what): text})

    async def _agree(self, source: Cluster, mirror: Mirror, each: MirroredPartition) -> tuple[Agreement, int | None]:
        """The end offset after the cut, and the first offset of an open transaction there; None if there is none."""
        key = topic, partition_id = each.source_key
        leader, epoch, log = each.source_leader, each.source_epoch, each.partition.log
        if leader < 0 or epoch < mirror.agreed_below:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"the source has no leader of {topic}-{partition_id} yet")

        async def source_end(asked: int) -> tuple[int, int]:
            return await epoch_end(source, topic, partition_id, asked, leader_id=leader, leader_epoch=epoch)

        async def source_start() -> int:
            found = await list_offsets(source, {key: EARLIEST})
            if key not in found:
                raise ProtocolError(f"broker {leader} did not return the log start offset of {topic}-{partition_id}")
            return found[key]

        async def own_end(asked: int) -> tuple[int, int]:
            return log.end_offset_for_epoch(asked)

        agreed = await agree(mirror.agreed_below, source_end, source_start, own_end)
        if agreed.starts_over:
            return agreed, None
        if agreed.offset >= log.log_end_offset:
            return agreed, min((entry.transaction_start for entry in log.producers.open_transactions()), default=None)
        below = await self._scan_below(each.partition, agreed.offset)
        if may_be_compacted(log) or below.has_gaps:
            # Compaction may have removed records in favour of some that are cut now.
            return Agreement(await source_start(), starts_over=True), None
        return agreed, below.first_open

    async def _scan_below(self, partition: Partition, end_offset: int) -> Below:
        """Scan the log below an offset; once for each leader epoch, since nothing is appended."""
        key = partition.log, partition.leader_epoch, end_offset
        known = self._below.get(partition.name)
        if known is None or known[0] != key:
            known = self._below[partition.name] = key, await scan_below(partition.log, end_offset)
        return known[1]

    async def _cut(self, mirror: Mirror, each: MirroredPartition, agreed: Agreement, first_open: int | None) -> bool:
        """Write records and aborted transactions to a failback file, then cut the log; returns whether it is done."""
        partition = each.partition
        log, epoch, end = partition.log, partition.leader_epoch, partition.log.log_end_offset
        if not _may_cut(each):
            return False
        first = log.log_start_offset if agreed.starts_over else max(agreed.offset, log.log_start_offset)
        first = first if first_open is None else min(first, first_open)
        file: Path | None
        if first < end:
            file, size_bytes = await self._failback_file(each, first, starts_over=agreed.starts_over)
        else:
            file, size_bytes = _known_file(partition, mirror.leader_epoch)
        if agreed.starts_over or agreed.offset < end:
            # The cut may remove the markers of transactions that are open below: no coordinator writes them again.
            await self._set(mirror, f"begun.{partition.partition_id}", str(epoch))
        if not _may_cut(each) or (partition.log, partition.leader_epoch, log.log_end_offset) != (log, epoch, end):
            return False
        if not agreed.starts_over and agreed.offset < end and may_be_compacted(log):
            return False  # the settings have changed since the check: the next round starts over
        if not truncate_leader(partition, agreed.offset, starts_over=agreed.starts_over):
            return False
        self._written.pop(partition.name, None)
        self._below.pop(partition.name, None)
        each.cut = Cut(agreed.offset, epoch, file, size_bytes)
        return True

    async def _failback_file(self, each: MirroredPartition, first: int, *, starts_over: bool) -> tuple[Path, int]:
        """The file of the batches from `first` on, and its bytes; that of an earlier round if the log is unchanged."""
        partition = each.partition
        log, epoch, end = partition.log, partition.leader_epoch, partition.log.log_end_offset
        known = self._written.get(partition.name)
        if known is not None and (known.log, known.first, known.epoch, known.end) == (log, first, epoch, end):
            return known.file, known.size_bytes

        def on_progress(done: int, whole: int) -> None:
            text = f"failback file: {done} of {whole} bytes are written"
            each.reason = each.reason.followed_by(Why.FAILBACK, text, self._clock.now_ms())

        file = failback_path(log, first, epoch, partition.topic_id)
        size_bytes = await write_failback_file(log, first, file, on_progress)
        self._written[partition.name] = _Written(log, first, epoch, end, file, size_bytes)
        _log.warning(
            "failback file written",
            partition=partition.name,
            file=file,
            bytes=size_bytes,
            first=first,
            end=end,
            starts_over=starts_over,
        )
        return file, size_bytes


def known_cut(partition: Partition) -> Cut | None:
    """The newest failback file of the partition on this broker, also of an earlier process. Raises StorageError."""
    found = newest_failback_file(partition.log, partition.topic_id)
    return None if found is None else Cut(found.offset, found.leader_epoch, found.path, found.size_bytes)


def _known_file(partition: Partition, first_epoch: int) -> tuple[Path | None, int]:
    """The file of the failback that began in `first_epoch`; a file of an earlier one has none of the cut batches."""
    known = known_cut(partition)
    return (None, 0) if known is None or known.leader_epoch < first_epoch else (known.file, known.size_bytes)


def _may_cut(each: MirroredPartition) -> bool:
    partition = each.partition
    if partition.in_sync.pending is not None:
        return False  # the change may end the leadership
    return partition.is_leader and partition.is_failing_back and not partition.is_isolated
