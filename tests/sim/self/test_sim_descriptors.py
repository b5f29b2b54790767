"""Files cannot be opened now and then, as sockets hold all descriptors: nothing is lost, and no node stops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from odradek.common.errors import ApiError, ErrorCode, StorageError
from odradek.common.ports import is_out_of_descriptors
from odradek.log.log import Log
from odradek.log.rolling import roll
from odradek.log.truncation import truncate_fully_and_start_at, truncate_to
from odradek.raft.metadata_log import MetadataLog
from tests.sim.crowded import CrowdedCluster, CrowdedNode
from tests.sim.disk import DiskFaults, SimDisk
from tests.sim.failures import failures
from tests.sim.one_node import patiently
from tests.sim.runs import run_seed
from tests.sim.self.test_sim_findings import DRAWS, HOME, LOOSE, append, new_disk, opened, topic_batch
from tests.support.order import slow_after

pytestmark = pytest.mark.usefixtures("no_log_lines")


def test_a_flush_that_was_held_up_is_done_whole_by_the_next() -> None:
    for seed in range(DRAWS):
        disk = new_disk(seed)
        log = opened(disk, LOOSE)
        append(log)
        log.flush()
        append(log, epoch=3)
        roll(log, 0)
        append(log, epoch=4)
        disk.faults = DiskFaults(too_many_files=1.0)
        with pytest.raises(StorageError) as held_up:
            log.flush()
        assert is_out_of_descriptors(held_up.value.__cause__)
        disk.faults = DiskFaults()
        log.flush_state.undo()
        log.flush()
        disk.lose_power()
        after = opened(disk, LOOSE, log.recovery_point)
        assert [after.epoch_of(offset) for offset in range(after.log_end_offset)] == [0, 3, 4]


def runs_out(needed: Iterator[int], left: int) -> Callable[[str], bool]:
    """Whether a fault happens: there are so many descriptors left, and each question takes one."""
    return lambda _: next(needed) >= left


def filled_log(disk: SimDisk) -> Log:
    log = opened(disk, LOOSE)
    for number in range(8):
        append(log, producer_id=7 + number % 2, sequence=number // 2, epoch=number // 3)
        if number in (1, 5):
            roll(log, 0)
    log.flush()
    return log


def what_is_known(log: Log) -> tuple[object, ...]:
    bases = [segment.base_offset for segment in log.segments]
    offsets = [header.base_offset for segment in log.segments for _, header in segment.headers(0)]
    return log.log_end_offset, bases, offsets, log.epochs.entries(), log.producers.producers


@pytest.mark.parametrize("cut", [lambda log: truncate_to(log, 4), lambda log: truncate_fully_and_start_at(log, 6)])
def test_a_cut_for_which_files_cannot_be_opened_is_none(cut: Callable[[Log], object]) -> None:
    """Half of one would leave the state of producers whose batches are gone: a resent batch would count as stored."""
    done = filled_log(new_disk())
    before = what_is_known(done)
    cut(done)
    wanted, refused, tries = what_is_known(done), 0, 0
    for left in itertools.count():
        disk, needed = new_disk(), itertools.count()
        log = filled_log(disk)
        log.partition_dir.files.invalidate_below(log.directory)
        disk.faults, disk.happens = (
            DiskFaults(too_many_files=1.0),
            runs_out(needed, left),
        )
        try:
            cut(log)
        except StorageError as error:
            assert is_out_of_descriptors(error.__cause__)
            disk.faults, refused = DiskFaults(), refused + 1
            assert what_is_known(log) == before
            cut(log)
        disk.faults, tries = DiskFaults(), tries + 1
        assert what_is_known(log) == wanted
        append(log, producer_id=9, sequence=0, epoch=3)
        found = what_is_known(log)
        log.flush()
        disk.process_died()
        assert what_is_known(opened(disk, LOOSE, log.recovery_point)) == found
        if next(needed) <= left:
            break
    assert 0 < refused < tries


def test_a_metadata_log_that_cannot_begin_again_is_as_before() -> None:
    for left in itertools.count():
        disk, needed = new_disk(), itertools.count()
        log = MetadataLog(disk, HOME)
        log.append([topic_batch(offset) for offset in range(3)])
        disk.faults, disk.happens = (
            DiskFaults(too_many_files=1.0),
            runs_out(needed, left),
        )
        try:
            log.restart_at(9)
        except OSError as error:
            assert is_out_of_descriptors(error)
            assert log.log_end_offset == 3 and bytes(log.read(0, 1 << 20))
            disk.faults = DiskFaults()
            log.restart_at(9)
        disk.faults = DiskFaults()
        log.append([topic_batch(9)])
        log.close()
        assert MetadataLog(disk, HOME).log_end_offset == 10
        if next(needed) <= left:
            break
    assert left > 1


@pytest.mark.parametrize("seed", slow_after(4, [4, 8, 12]))
def test_a_node_without_descriptors_loses_nothing(seed: int) -> None:
    report = run_seed(seed, kind=CrowdedNode)
    assert not failures([report])


@pytest.mark.parametrize("seed", slow_after(4, [4, 6, 102]))
def test_a_cluster_without_descriptors_loses_nothing(seed: int) -> None:
    report = run_seed(seed, kind=CrowdedCluster)
    assert not failures([report])


async def test_a_world_asks_again_what_its_nodes_cannot_answer_yet() -> None:
    answers: list[int | ApiError] = [7, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ApiError(ErrorCode.NOT_CONTROLLER)]

    async def ask() -> int:
        answer = answers.pop()
        if isinstance(answer, ApiError):
            raise answer
        return answer

    assert await patiently(ask) == 7
