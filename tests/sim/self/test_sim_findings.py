"""Scenarios for single disks and logs: bugs that seeds have found once, and planted bugs that seeds may miss.

Each scenario holds, and each that names a planted bug fails with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.common import ports
from odradek.common.errors import ApiError, StorageError
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.log import Log
from odradek.log.opening import open_log
from odradek.log.rolling import roll
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.protocol.record_types import encode_metadata_record
from odradek.raft.batches import data_batch
from odradek.raft.config import RaftConfig
from odradek.raft.metadata_log import SYNCED_OFFSET, MetadataLog
from odradek.raft.quorum_state import ElectionState
from odradek.raft.storage import QuorumStorage
from odradek.raft.voters import ReplicaKey, VoterSet
from odradek.record.batch import BatchHeader
from odradek.record.builder import build_batch
from odradek.record.record import Record
from tests.sim.bugs import ALL_BUGS, EASY_SEEDS, known_seeds
from tests.sim.directed import DIRECTED
from tests.sim.disk import DiskFaults, SimDisk
from tests.sim.group_scenarios import (
    a_coordinator_loads_all_though_bits_flip_on_the_way,
    a_coordinator_that_cannot_write_gives_its_disk_up,
    a_member_of_an_earlier_generation_is_refused,
)
from tests.sim.planted import ONE_NODE
from tests.sim.planted_cluster import MANY_NODES
from tests.support.nodes.listener import ScriptedListener
from tests.support.waiting import eventually_async

HOME = Path("/data")
LOG = HOME / "kept-0"
# The outcome of a loss of power is drawn; so many draws show every kind of it.
DRAWS = 60
SYNCED = LogConfig(flush_messages=1)
LOOSE = LogConfig(index_interval_bytes=64)


def new_disk(seed: int = 0) -> SimDisk:
    disk = SimDisk(Random(seed), DiskFaults(), lambda: 0)
    ports.make_dirs_durably(disk, LOG)
    return disk


def opened(disk: SimDisk, config: LogConfig = SYNCED, recovery_point: int = 0) -> Log:
    return open_log(FileCache(disk), LOG, ("kept", 0), config, now_ms=0, recovery_point=recovery_point)


def append(log: Log, *, size: int = 10, producer_id: int = -1, sequence: int = -1, epoch: int = 0) -> int:
    """One batch of one record of so many bytes; returns its offset."""
    batch = build_batch(
        [Record(None, b"v" * size, timestamp_ms=0)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )
    return log.append_as_leader([batch], [BatchHeader.read(batch)], leader_epoch=epoch, now_ms=0).base_offset


def topic_batch(offset: int) -> bytes:
    value = encode_metadata_record(TopicRecord(name=f"topic-{offset}"), 0)
    return data_batch([value], base_offset=offset, leader_epoch=1, now_ms=0)


def fail_sync(disk: SimDisk, work: Callable[[], None]) -> None:
    disk.faults = DiskFaults(sync_error=1.0)
    with pytest.raises(StorageError):
        work()
    disk.faults = DiskFaults()
    disk.process_died()


def a_replaced_file_is_new_after_a_loss_of_power() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        for content in (b"old", b"new"):
            ports.write_file_durably(disk, HOME / "checkpoint", content)
        disk.lose_power()
        assert ports.read_file(disk, HOME / "checkpoint") == b"new"


def a_failed_sync_and_a_restart_do_not_make_records_durable() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = opened(disk)
        append(log)
        log.flush()
        append(log)
        fail_sync(disk, log.flush)
        assert opened(disk, recovery_point=1).recovery_point == 2
        disk.lose_power()
        assert opened(disk).log_end_offset == 2


def epochs_of_records_that_a_start_made_durable_are_known_to_the_next() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = opened(disk)
        append(log)
        log.flush()
        append(log, epoch=3)
        disk.process_died()
        assert opened(disk, recovery_point=1).recovery_point == 2
        disk.lose_power()
        assert opened(disk, recovery_point=2).epochs.entries() == [(0, 0), (3, 1)]


def a_segment_whose_name_could_not_be_made_durable_is_durable_after_the_next_start() -> None:
    for seed in range(DRAWS):
        for records in (0, 1):  # in the segment when the sync of its name fails
            disk = new_disk(seed)
            log = opened(disk)
            append(log)
            log.flush()
            roll(log, now_ms=0)
            for _ in range(records):
                append(log)
            disk.faults = DiskFaults(sync_dir_error=1.0)
            with contextlib.suppress(OSError, StorageError):
                log.flush()
                disk.sync_dir(LOG)
            disk.faults = DiskFaults()
            disk.process_died()
            log = opened(disk, recovery_point=1)
            append(log)
            log.flush()
            disk.lose_power()
            assert opened(disk, recovery_point=1).log_end_offset == 2 + records


def batches_before_a_snapshot_are_known_again_after_a_restart() -> None:
    """A producer sends all batches in flight again: the older ones are known as duplicates, like the last."""
    disk = new_disk()
    log = opened(disk)
    offsets = [append(log, producer_id=7, sequence=number) for number in range(4)]
    roll(log, 0)
    log.flush()
    disk.process_died()
    again = opened(disk, recovery_point=4)
    for number, offset in enumerate(offsets):
        try:
            assert append(again, producer_id=7, sequence=number) == offset
        except ApiError as error:
            raise AssertionError("taken for a batch out of order") from error


def a_slow_request_is_not_overtaken() -> None:
    """The responses on one connection are in the order of the requests, whichever is ready first."""

    async def run() -> None:
        async with ScriptedListener() as listener:
            with contextlib.closing(await listener.client()) as client:
                await client.beat(0, "wait")
                await client.beat(1, "now")
                await eventually_async(lambda: listener.begun == [0, 1])
                assert await client.is_silent()
                listener.finish(0)
                assert await client.numbers(2) == [0, 1]

    asyncio.run(run())


def a_stop_between_the_two_names_of_a_segment_loses_nothing() -> None:
    disk = new_disk()
    append(opened(disk))
    path = LOG / f"{0:020d}.log"
    disk.rename(path, path.with_name(path.name + ".swap"))
    disk.process_died()
    assert opened(disk).log_end_offset == 1


def a_write_of_the_synced_offset_that_failed_half_way_is_no_other_offset() -> None:
    """A front of the new text before the rest of the old one may read as an offset that is larger than both."""
    path = HOME / SYNCED_OFFSET
    for records in ((8, 4), (1, 9), (9, 1)):
        disk = new_disk()
        log = MetadataLog(disk, HOME)
        texts = []
        for count in records:
            log.append([topic_batch(log.log_end_offset + number) for number in range(count)])
            log.flush()
            texts.append(ports.read_file(disk, path))
        log.close()
        old, new = texts
        for front in range(len(new) + 1):
            disk.open(path).write_at(0, [new[:front] + old[front:]])
            again = MetadataLog(disk, HOME)
            assert again.log_end_offset == sum(records)
            again.close()


def a_metadata_log_whose_restart_was_cut_short_opens_behind_its_snapshot() -> None:
    """The log opens at whichever step of the restart the machine lost power, and whichever names are durable then."""

    class DarkError(Exception):
        pass

    steps = []
    for base in (0, 9):  # below the snapshot, and at its end, where another history begins a segment
        for last, seed in itertools.product(range(16), range(6)):
            disk, count = new_disk(seed), itertools.count()
            log = MetadataLog(disk, HOME)
            if base:
                log.restart_at(base)
            log.append([topic_batch(base + offset) for offset in range(3)])
            log.roll()
            log.append([topic_batch(base + offset) for offset in range(3, 5)])
            log.flush()
            right = {name: getattr(disk, name) for name in ("open", "remove", "sync_dir")}

            def until_dark(step: Any, last: int = last, count: Any = count) -> Any:
                def take(*given: Any, **more: Any) -> Any:
                    if next(count) >= last:
                        raise DarkError
                    return step(*given, **more)

                return take

            for name, step in right.items():
                setattr(disk, name, until_dark(step))
            with contextlib.suppress(DarkError):
                log.restart_at(9)
            steps.append(next(count))
            for name, step in right.items():
                setattr(disk, name, step)
            disk.lose_power()
            again = MetadataLog(disk, HOME, covered_offset=9)
            assert again.log_start_offset <= 9
            again.restart_at(9)
            again.append([topic_batch(9)])
            again.flush()
            disk.lose_power()
            assert MetadataLog(disk, HOME, covered_offset=9).log_end_offset == 10
    assert max(steps) < 16, "every step was the last one"


def flips_at(disk: SimDisk, read: int) -> None:
    """Let one bit flip in that read of records, counted from here."""
    left = read

    def chance() -> float:
        nonlocal left
        left -= 1
        return 0.0 if left == -1 else 1.0

    disk.chance = chance  # type: ignore[method-assign]  # the test replaces it
    disk.faults = DiskFaults(flipped_bit=0.5, flips_records=True)


def a_bit_that_flips_while_a_log_is_recovered_costs_no_record() -> None:
    flipped = 0
    for read in range(25):
        disk = new_disk(read)
        log = opened(disk)
        for _ in range(5):
            append(log, size=300)
        disk.process_died()
        flips_at(disk, read)
        with contextlib.suppress(StorageError):  # then it is started again
            assert opened(disk).log_end_offset == 5
        flipped += disk.injected.get("flipped bit", 0)
        disk.faults = DiskFaults()
        disk.process_died()
        assert opened(disk).log_end_offset == 5
        disk.lose_power()
        assert opened(disk).log_end_offset == 5, "what was stored again is what was there"
    assert flipped > 2


def a_bit_that_flips_while_metadata_is_read_costs_no_record() -> None:
    flipped = 0
    for read in range(25):
        disk = new_disk(read)
        log = MetadataLog(disk, HOME)
        log.append([topic_batch(offset) for offset in range(5)])
        disk.process_died()
        flips_at(disk, read)
        with contextlib.suppress(StorageError):
            assert MetadataLog(disk, HOME).log_end_offset == 5
        flipped += disk.injected.get("flipped bit", 0)
        disk.faults = DiskFaults()
        disk.process_died()
        assert MetadataLog(disk, HOME).log_end_offset == 5
        disk.lose_power()
        assert MetadataLog(disk, HOME).log_end_offset == 5
    assert flipped > 2


def a_failed_sync_and_a_restart_do_not_make_metadata_durable() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = MetadataLog(disk, HOME)
        log.append([topic_batch(0)])
        log.flush()
        log.append([topic_batch(1)])
        fail_sync(disk, log.flush)
        MetadataLog(disk, HOME)
        disk.lose_power()
        assert MetadataLog(disk, HOME).log_end_offset == 2


def a_metadata_segment_whose_name_could_not_be_made_durable_is_not_written_to() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = MetadataLog(disk, HOME)
        log.append([topic_batch(0)])
        log.flush()
        disk.faults = DiskFaults(sync_dir_error=1.0, names_are_dropped=True)
        with pytest.raises(OSError, match="fsync error of a directory"):
            log.roll()
        disk.faults = DiskFaults()
        disk.process_died()
        log = MetadataLog(disk, HOME)
        for offset in (1, 2):
            log.append([topic_batch(offset)])
            log.flush()
            log.roll()
        disk.lose_power()
        assert MetadataLog(disk, HOME).log_end_offset == 3


def a_metadata_segment_that_was_rolled_before_its_sync_is_synced_by_the_next_start() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = MetadataLog(disk, HOME)
        log.append([topic_batch(0)])
        log.flush()
        log.append([topic_batch(1)])
        log.roll()
        disk.process_died()
        MetadataLog(disk, HOME)
        disk.lose_power()
        assert MetadataLog(disk, HOME).log_end_offset == 2


def bytes_that_a_full_disk_took_back_stay_gone() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = opened(disk)
        append(log)
        log.flush()
        clean = disk.size(LOG / f"{0:020d}.log")
        disk.faults = DiskFaults(capacity_bytes=disk.used_bytes() + 50)
        with pytest.raises(ApiError):
            append(log, size=500)
        disk.faults = DiskFaults()
        roll(log, 0)
        append(log)
        log.flush()
        disk.lose_power()
        assert disk.size(LOG / f"{0:020d}.log") == clean


def damage_before_the_last_index_entry_is_found() -> None:
    disk = new_disk()
    log = opened(disk, LOOSE)
    for _ in range(20):
        append(log)
    log.segments[-1].indexes.flush()
    size = disk.size(LOG / f"{0:020d}.log") // 20
    disk.process_died()
    # The body of the tenth batch never reached the disk.
    disk.open(LOG / f"{0:020d}.log").write_at(9 * size + 61, [bytes(size - 61)])
    assert opened(disk, LOOSE).log_end_offset == 9


def an_index_that_points_elsewhere_is_rebuilt() -> None:
    disk = new_disk()
    log = opened(disk, LOOSE)
    for _ in range(20):
        append(log)
    size = disk.size(LOG / f"{0:020d}.log") // 20
    disk.process_died()
    index = disk.open(LOG / f"{0:020d}.index", create=True)
    index.write_at(0, [(3).to_bytes(4, "big") + (15 * size).to_bytes(4, "big")])
    again = opened(disk, LOOSE)
    read = again.read(5, max_bytes=1)
    assert BatchHeader.read(read.chunks[0].read()).base_offset == 5


def segments_behind_a_cut_do_not_come_back() -> None:
    disk = new_disk()
    log = opened(disk, LOOSE)
    append(log)
    append(log)
    roll(log, 0)
    append(log)
    disk.process_died()
    first = disk.open(LOG / f"{0:020d}.log")
    first.truncate(first.size() - 5)
    assert opened(disk, LOOSE).log_end_offset == 1
    again = opened(disk, LOOSE)
    assert [append(again), append(again)] == [1, 2]
    disk.process_died()
    again = opened(disk, LOOSE)
    assert (again.log_end_offset, len(again.segments.bases)) == (3, 1)


def a_cut_takes_no_more_than_what_is_torn() -> None:
    disk = new_disk()
    log = opened(disk, LOOSE)
    for _ in range(3):
        append(log)
    disk.process_died()
    file = disk.open(LOG / f"{0:020d}.log")
    file.truncate(file.size() - 1)
    assert opened(disk, LOOSE).log_end_offset == 2


def a_cut_stays_cut_after_a_loss_of_power() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = opened(disk, LOOSE)
        append(log)
        append(log, size=600)
        log.flush()
        disk.process_died()
        file = disk.open(LOG / f"{0:020d}.log")
        file.write_at(file.size() - 50, [b"damaged"])
        file.sync()
        assert opened(disk, LOOSE).log_end_offset == 1
        disk.lose_power()
        assert disk.size(LOG / f"{0:020d}.log") < 100


def torn_metadata_is_cut() -> None:
    disk = new_disk()
    log = MetadataLog(disk, HOME)
    log.append([topic_batch(0)])
    log.flush()
    batch = topic_batch(1)
    log.append([batch])
    disk.process_died()
    file = disk.open(HOME / f"{0:020d}.log")
    file.write_at(file.size() - 5, [b"\xff" * 5])
    assert MetadataLog(disk, HOME).log_end_offset == 1


def metadata_that_a_new_leader_cut_off_is_not_missed() -> None:
    """A follower cuts its log twice as new leaders ask; neither a restart nor a loss of power takes that for damage."""
    for draw in range(DRAWS):
        disk = new_disk(draw)
        log = MetadataLog(disk, HOME)
        for offset in range(6):
            log.append([topic_batch(offset)])
        log.flush()
        disk.process_died()
        log = MetadataLog(disk, HOME)
        log.truncate_to(4)
        log.flush()
        disk.process_died()
        log = MetadataLog(disk, HOME)
        assert log.log_end_offset == 4
        log.truncate_to(2)
        disk.lose_power()
        assert MetadataLog(disk, HOME).log_end_offset in (2, 3, 4)


def a_vote_outlives_a_loss_of_power() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        cast = ElectionState(leader_epoch=7, voted=ReplicaKey(2))
        for state in (ElectionState(leader_epoch=6), cast):
            storage = QuorumStorage(disk, HOME, RaftConfig(), MetadataPublisher(), VoterSet())
            storage.open()
            storage.store_state(state, "a-cluster")
        disk.lose_power()
        assert QuorumStorage(disk, HOME, RaftConfig(), MetadataPublisher(), VoterSet()).open() == cast


SCENARIOS: dict[Callable[[], None], tuple[str, ...]] = {
    a_replaced_file_is_new_after_a_loss_of_power: (
        "replaced file's name not synced",
        "replaced file's bytes not synced",
    ),
    a_failed_sync_and_a_restart_do_not_make_records_durable: (
        "recovered data not written again",
        "recovered data not synced",
    ),
    epochs_of_records_that_a_start_made_durable_are_known_to_the_next: ("epochs of recovered data not stored",),
    a_failed_sync_and_a_restart_do_not_make_metadata_durable: ("metadata log not written again",),
    a_metadata_segment_whose_name_could_not_be_made_durable_is_not_written_to: (),
    a_segment_whose_name_could_not_be_made_durable_is_durable_after_the_next_start: (),
    a_stop_between_the_two_names_of_a_segment_loses_nothing: (),
    a_metadata_segment_that_was_rolled_before_its_sync_is_synced_by_the_next_start: (),
    a_write_of_the_synced_offset_that_failed_half_way_is_no_other_offset: (),
    a_bit_that_flips_while_a_log_is_recovered_costs_no_record: (),
    a_bit_that_flips_while_metadata_is_read_costs_no_record: (),
    a_metadata_log_whose_restart_was_cut_short_opens_behind_its_snapshot: (),
    bytes_that_a_full_disk_took_back_stay_gone: (),
    damage_before_the_last_index_entry_is_found: (
        "recovery trusts the index",
        "no CRC check in recovery",
        "no recovery",
    ),
    an_index_that_points_elsewhere_is_rebuilt: (),
    batches_before_a_snapshot_are_known_again_after_a_restart: ("producers' windows not restored",),
    a_slow_request_is_not_overtaken: ("answers in the order in which they are ready",),
    segments_behind_a_cut_do_not_come_back: ("later segments survive a cut",),
    a_cut_takes_no_more_than_what_is_torn: ("cut one batch short",),
    a_cut_stays_cut_after_a_loss_of_power: ("cut not synced", "cut leaves the torn bytes"),
    a_vote_outlives_a_loss_of_power: ("votes are not stored",),
    torn_metadata_is_cut: ("metadata log not checked",),
    metadata_that_a_new_leader_cut_off_is_not_missed: ("what counted as synced stays after a cut",),
    a_coordinator_loads_all_though_bits_flip_on_the_way: (),
    a_coordinator_that_cannot_write_gives_its_disk_up: ("a coordinator that cannot write stays",),
    a_member_of_an_earlier_generation_is_refused: (
        "generation of a commit not checked",
        "generation of a heartbeat not checked",
        "assignment given to an old generation",
    ),
}
CAUGHT = [(scenario, name) for scenario, names in SCENARIOS.items() for name in names]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario_holds(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize(("scenario", "name"), CAUGHT, ids=[name.replace(" ", "-") for _, name in CAUGHT])
def test_scenario_catches_a_planted_bug(scenario: Callable[[], None], name: str) -> None:
    bug = next(bug for bug in ALL_BUGS if bug.name == name)
    with bug.planted(), contextlib.suppress(AssertionError, StorageError, OSError):
        scenario()
        raise RuntimeError(f"{bug.name} is not caught")


def test_bugs_that_seeds_do_not_catch_soon_have_a_scenario() -> None:
    survivors = [
        bug.name
        for bug in (*ONE_NODE, *MANY_NODES)
        if (caught := known_seeds().get(bug.name, (None, 0))[0]) is None or caught > EASY_SEEDS
    ]
    assert not [name for name in survivors if name not in [*DIRECTED, *(caught for _, caught in CAUGHT)]]
