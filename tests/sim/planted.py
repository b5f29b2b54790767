"""Bugs to plant: each makes one line of the product wrong, for as long as a `with` lasts, to prove that it is found.

A bug names a function of the product and a piece of its source; the function is compiled again with other text in that
place and takes the place of the right one. Formatting, a renamed variable and a move to another module do not matter.
The product has no switch for this, and a bug that has no place any more fails to be planted instead of passing for one
that was caught. `python -m tests.sim.bugs` counts the seeds that each survives, for docs/simulation-bugs.md.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from tests.support.planted.places import owner_of, place_in


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug: a small change of the product.

    Attributes:
        name: its name in the table.
        where: `module:function` or `module:Class.method`, below `odradek`.
        right, wrong: text of the function's source, dedented; `right` has one place in it, as `places` finds it.
        meaning: the behaviour of the broker with the bug, in a few words.
    """

    name: str
    where: str
    right: str
    wrong: str
    meaning: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Run with the bug. Raises LookupError where the product no longer has the line."""
        owner, name, in_class = owner_of(self.where)
        original = vars(owner)[name]
        wrong = _recompiled(original, self._change)
        places = [owner] if in_class else _modules_with(name, original)
        for place in places:
            setattr(place, name, wrong)
        try:
            yield
        finally:
            for place in places:
                setattr(place, name, original)

    def _change(self, source: str) -> str:
        try:
            place = place_in(source, self.right)
        except LookupError as error:
            raise LookupError(f"{self.name}: {self.where} has {error}") from None
        indent = source[source.rfind("\n", 0, place.start) + 1 : place.start]
        lines = place.spelt_here(self.wrong).split("\n")
        assert len(lines) == 1 or not indent.strip(), "only a whole line can become several"
        return source[: place.start] + f"\n{indent}".join(lines) + source[place.end :]


def _recompiled(original: Any, change: Callable[[str], str]) -> Any:
    """A function, property or method made of its changed source, in the names of the module where it stands."""
    if isinstance(original, property):
        assert original.fget is not None and isinstance(original.fget, FunctionType)
        return property(_recompiled(original.fget, lambda source: change(source.replace("@property\n", ""))))
    if isinstance(original, classmethod):
        return classmethod(_recompiled(original.__func__, lambda source: change(source.replace("@classmethod\n", ""))))
    assert isinstance(original, FunctionType)
    source = textwrap.dedent(inspect.getsource(original))
    made: dict[str, Any] = {}
    names = inspect.unwrap(original).__globals__
    code = compile("from __future__ import annotations\n" + change(source), f"<planted in {names['__name__']}>", "exec")
    exec(code, names, made)
    return made[original.__name__]


def _modules_with(name: str, original: object) -> list[ModuleType]:
    """Every module of the product that imported a function by its name."""
    modules = [module for key, module in list(sys.modules.items()) if key.split(".")[0] == "odradek"]
    return [module for module in modules if vars(module).get(name) is original]


ONE_NODE = (
    # The way of a record.
    Bug(
        "acknowledged before the append",
        "server.handlers.produce:_Appends._write",
        "info = partition.append_as_leader("
        "(records,), (header,), required_acks=acks, now_ms=now_ms, verification=check)",
        "from odradek.log.append_info import AppendInfo\n"
        "end = partition.log.log_end_offset\n"
        "info = AppendInfo(end, end + header.last_offset_delta)\n"
        "later = partition.append_as_leader\n"
        "kept, headers = (bytes(records),), (header,)\n"
        "asyncio.get_running_loop().call_later(\n"
        "    0.005, lambda: later(kept, headers, required_acks=1, now_ms=now_ms)\n"
        ")\n"
        "acks = 0",
        "the answer leaves 5 ms before the record is written",
    ),
    Bug(
        "no sequence check",
        "log.log:Log.append_as_leader",
        "known = self.producers.check(header, verification)",
        "known = None",
        "what is sent again is appended again",
    ),
    Bug(
        "a gap in the sequence is accepted",
        "log.producer_state:ProducerState._check_sequence",
        "expected = _expected(entry, header.producer_epoch)",
        "return None",
        "a batch is appended though the one before it is missing",
    ),
    Bug(
        "what follows a refused batch is out of order",
        "log.producer_state:ProducerState._check_sequence",
        "if self.refusals.by_producer:",
        "if self.refusals.by_producer and entry is None:",
        "batches behind one that a full disk refused cost a known producer its epoch",
    ),
    Bug(
        "a duplicate gets new offsets",
        "log.producer_state:ProducerState._check_sequence",
        "return batch",
        "return batch._replace(last_offset=batch.last_offset + 1)",
        "what is sent again is answered with an offset where it does not lie",
    ),
    Bug(
        "log end before the write",
        "log.log:Log.append_with_offsets",
        "position = segment.write(chunks)",
        "self.log_end_offset = headers[-1].last_offset + 1\nposition = segment.write(chunks)",
        "an append that fails, for a disk that is full, has moved the log's end",
    ),
    Bug(
        "watermark past the end",
        "log.log:Log.update_high_watermark",
        "offset = min(offset, self.log_end_offset)",
        "offset = offset + 0",
        "a watermark from the checkpoint is believed, though its records are lost",
    ),
    Bug(
        "reads above the watermark",
        "replica.partition:Partition.read",
        "upper = end if replica_id >= 0 else stable if isolation_level == READ_COMMITTED else watermark",
        "upper = end",
        "consumers get records that are not yet as safe as was promised",
    ),
    Bug(
        "index points one batch too far",
        "log.segment_indexes:SegmentIndexes.add",
        "self.offsets.append(header.base_offset + header.last_offset_delta, position)",
        "self.offsets.append(header.base_offset, position + header.size_bytes)",
        "a read that begins at an index entry skips a batch",
    ),
    Bug(
        "lost wake-up of a fetch",
        "replica.waiters:DataWait.bytes_available",
        "if self._missing_bytes <= 0:",
        "if self._missing_bytes < -(1 << 30):",
        "a long poll waits to its end though records came",
    ),
    Bug(
        "lost wake-up of a producer",
        "replica.partition:Partition.flushed",
        "if self.is_leader:",
        "if False:",
        "what was made durable is never acknowledged with acks=all",
    ),
    Bug(
        "answers in the order in which they are ready",
        "server.network.response_order:ResponseOrder.add",
        "if slot is None:",
        "if slot is not None:\n    self._slots.remove(slot)\nwriter.add(chunks)\nif True:\n    return\nif False:",
        "a slow request is overtaken by those behind it",
    ),
    Bug(
        "answer to the wrong request",
        "server.network.requests:Requests._send_response",
        "chunks = encode_response(context.api_key, context.api_version, context.correlation_id, response)",
        "chunks = encode_response(context.api_key, context.api_version, "
        "context.correlation_id - bool(len(self.responses)), response)",
        "the answer bears the number of the request before it",
    ),
    # fsync.
    Bug(
        "fsync answered early",
        "replica.flusher:Flusher._flush",
        "await self._disk.run_blocking(work)\nlog.finish_flush(end_offset)\npartition.flushed()",
        "log.finish_flush(end_offset)\npartition.flushed()\nawait self._disk.run_blocking(work)",
        "with flush.messages=1 a record is acknowledged before its fsync has ended",
    ),
    Bug(
        "flush.messages forgotten",
        "replica.partition:Partition.flush_is_due",
        "return self._flush_messages < NEVER and self.log.unflushed_count >= self._flush_messages",
        "return False",
        "nothing is synced before its acknowledgement",
    ),
    Bug(
        "failed fsync tried again",
        "log.files:make_durable",
        "shared.file.sync()",
        "try:\n    shared.file.sync()\nexcept OSError:\n    shared.file.sync()",
        "the second fsync says that all is well, and the data is gone",
    ),
    Bug(
        "new segment's name not synced",
        "log.flush_state:FlushState._changed_directories",
        "is_changed = has_new_files or any(segment.base_offset >= self.recovery_point for segment in dirty)",
        "is_changed = False",
        "a segment's bytes are durable, its name is not",
    ),
    Bug(
        "replaced file's name not synced",
        "common.ports:write_file_durably",
        "disk.sync_dir(path.parent)",
        "pass",
        "a checkpoint's old content comes back after a loss of power",
    ),
    Bug(
        "replaced file's bytes not synced",
        "common.ports:write_file_durably",
        "file.sync()",
        "pass",
        "a checkpoint's new name is durable, its bytes are not",
    ),
    # Recovery.
    Bug(
        "no recovery",
        "log.recovery:load_directory",
        "if not clean_shutdown or end is None or is_too_long:",
        "if end is None:",
        "after an unclean stop headers and indexes are believed",
    ),
    Bug(
        "no CRC check in recovery",
        "log.verification:check_batches",
        "if len(batch) < size or not crc_is_valid(batch, header):",
        "if len(batch) < size:",
        "a batch of zeros or torn in its middle stays",
    ),
    Bug(
        "recovery trusts the index",
        "log.recovery:_verify",
        "for found in check_batches(segment, expected_offset=segment.base_offset):",
        "segment.indexes.load()\n"
        "start = segment.indexes.offsets.last_position()\n"
        "end = next((header.base_offset for _, header in segment.headers(start)), end)\n"
        "for found in check_batches(segment, position=start, expected_offset=end):",
        "batches before the last index entry are not looked at",
    ),
    Bug(
        "cut one batch short",
        "log.recovery:_recover",
        "truncate_segment(segment, damage.position, end)",
        "good = [(at, header) for at, header in segment.headers(0) if at < damage.position]\n"
        "if good:\n"
        "    damage, end = Damage(good[-1][0], damage.reason), good[-1][1].base_offset\n"
        "truncate_segment(segment, damage.position, end)",
        "the last good batch before a torn one is dropped with it",
    ),
    Bug(
        "cut leaves the torn bytes",
        "log.recovery:_recover",
        "truncate_segment(segment, damage.position, end)",
        "pass",
        "new batches are written behind the torn one",
    ),
    Bug(
        "cut not synced",
        "log.recovery:_recover",
        "segment.sync_file_and_directory()",
        "pass",
        "a second loss of power brings back what was cut off",
    ),
    Bug(
        "later segments survive a cut",
        "log.recovery:_recover",
        "mark_deleted(later)",
        "pass",
        "segments behind a lost tail come back at the next start",
    ),
    Bug(
        "recovered data not written again",
        "log.recovery:_make_durable",
        "rewrite_from(segment, found[0] if found is not None else 0)",
        "pass",
        "after a failed fsync and a restart, the next fsync has nothing to do and says that all is well",
    ),
    Bug(
        "recovered data not synced",
        "log.recovery:load_directory",
        "if end - recovered >= flush_messages and",
        "if False and",
        "what a killed process left in the page cache is believed durable",
    ),
    Bug(
        "epochs of recovered data not stored",
        "log.recovery:_make_durable",
        "return epochs is None or write_lines_if_space(disk, directory / LEADER_EPOCHS, epochs.lines())",
        "return True",
        "the next start does not know under which epochs records were written",
    ),
    Bug(
        "producers from snapshots alone",
        "log.recovery:load_producers",
        "if header.last_offset >= start:",
        "if False:",
        "batches behind the newest snapshot are unknown after a restart",
    ),
    Bug(
        "producers' windows not restored",
        "log.recovery:load_producers",
        "_widen_windows(state, segments)",
        "pass",
        "after a restart each producer's last batch alone is known",
    ),
    # The metadata log and the state machines.
    Bug(
        "controller answers before the commit",
        "statemachine.runtime:Runtime._release",
        "while self._parked and self._parked[0].end_offset <= self._committed_offset:",
        "while self._parked:",
        "a topic is acknowledged, and a loss of power takes it",
    ),
    Bug(
        "metadata committed before its fsync",
        "raft.driver:RaftDriver._sync",
        "await self._disk.run_blocking(self.log.begin_flush())",
        "work = self.log.begin_flush()\n"
        "def late() -> None:\n"
        "    try:\n"
        "        work()\n"
        "    except OdradekError as error:\n"
        "        self._fail(error)\n"
        "asyncio.get_running_loop().call_later(0.02, late)",
        "the controller counts on records that are not on the disk yet",
    ),
    Bug(
        "metadata log not checked",
        "raft.metadata_log:MetadataLog._load_segment",
        "if not crc_is_valid(batch, header) and not crc_is_valid(file.read_at(position, len(batch)), header):",
        "if False:",
        "a torn batch of metadata is replayed",
    ),
    Bug(
        "metadata log not written again",
        "raft.metadata_log:MetadataLog._make_durable",
        "file.write_at(place.position, [batch])",
        "pass",
        "after a failed fsync and a restart, metadata counts as durable that is not",
    ),
    Bug(
        "snapshot of the metadata loses a topic",
        "metadata.image:MetadataImage.records",
        "for topic in self.topics_by_id.values():",
        "for topic in list(self.topics_by_id.values())[: max(1, len(self.topics_by_id) - 1)]:",
        "a topic is gone once the log before the snapshot is removed",
    ),
    Bug(
        "producer ids given twice",
        "controller.brokers:Brokers.allocate_producer_ids",
        "next_producer_id=start + PRODUCER_ID_BLOCK,",
        "next_producer_id=start,",
        "after a restart a producer gets the id of another",
    ),
    Bug(
        "committed offsets not replayed",
        "coordinator.log:PartitionMachineLog.read_all",
        "offset, end_offset = log.log_start_offset, log.log_end_offset",
        "offset, end_offset = log.log_end_offset, log.log_end_offset",
        "a coordinator that starts knows no groups",
    ),
    Bug(
        "offset commit keeps the older",
        "coordinator.group.offsets.store:OffsetStore.replay",
        "self._put(group_id, (topic, partition_id), committed)",
        "if self.get(group_id, topic, partition_id) is None or record_offset % 8:\n"
        "    self._put(group_id, (topic, partition_id), committed)",
        "now and then a commit that was acknowledged does not count",
    ),
    # Groups and their members.
    Bug(
        "generation of a commit not checked",
        "coordinator.group.offsets.commits:Commits._check_commit",
        "_check_generation(group, request)",
        "pass",
        "a member that was given up commits over the one that has its partition",
    ),
    Bug(
        "generation of a heartbeat not checked",
        "coordinator.group.classic.membership:Membership.heartbeat",
        "if request.generation_id != group.generation_id:",
        "if False:",
        "a static member goes on with partitions that are another's",
    ),
    Bug(
        "assignment given to an old generation",
        "coordinator.group.classic.membership:Membership.sync",
        "if request.generation_id != group.generation_id:",
        "if False:",
        "a member that is late gets what the next generation gave it, for the one before",
    ),
    Bug(
        "commit answered before it is durable",
        "coordinator.group.service:Shard.__init__",
        "self._next_ticket = 0",
        "runtime = self.runtime\n"
        "runtime._release = lambda: [runtime._parked.popleft().release() for _ in range(len(runtime._parked))]\n"
        "self._next_ticket = 0",
        "a loss of power takes back an offset that was acknowledged",
    ),
    Bug(
        "sessions never end",
        "coordinator.group.classic.rebalance:Rebalance.on_session_timer",
        "if member is None or member.satisfies_heartbeat:",
        "if True:",
        "the partitions of a dead member are read by no other",
    ),
    Bug(
        "generations forgotten on load",
        "coordinator.group.registry:from_stored",
        "group.generation_id = value.generation",
        "group.generation_id = 0",
        "after a restart generations are numbered from one again",
    ),
    Bug(
        "every member gets the first one's partitions",
        "coordinator.group.classic.rebalance:Rebalance.propagate",
        "assignment=member.assignment,",
        "assignment=next(iter(group.members.values())).assignment,",
        "two members own a partition, and no member the others",
    ),
    Bug(
        "assignment answered before it is stored",
        "coordinator.group.classic.membership:Membership.sync",
        "return self._result([group_record(group, assignments)], None, pending)",
        "for member_id, each in group.members.items():\n"
        '    each.assignment = assignments.get(member_id, b"")\n'
        "self._rebalance.propagate(group, ErrorCode.NONE, now)\n"
        "group.transition_to(GroupState.STABLE, now)\n"
        "return self._result([])",
        "a crash makes another generation of the same number, with other owners",
    ),
    Bug(
        "a coordinator that cannot write stays",
        "coordinator.log:PartitionMachineLog.append",
        "self._on_storage_error(error)",
        "pass",
        "after a failed write its groups are refused by the only broker that has them",
    ),
    Bug(
        "a changed setting is not stored",
        "controller.configs:Configs.incremental_alter",
        "records.extend(self._incremental_one(key, changes))",
        "self._incremental_one(key, changes)",
        "a change of a topic's setting is acknowledged and lost",
    ),
)
