"""Future logs in the manager's maps: how one begins, what it inherits, and what a start finds of it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.ports import read_file
from odradek.log.checkpoints import CLEANED, LEADER_EPOCHS, LOG_START, RECOVERY_POINT, read_offsets
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.follower_append import append_as_follower
from odradek.log.future import copy_leader_epochs, is_continued_by
from odradek.log.log import Log
from odradek.log.segment import Segment
from tests.support.models.batches import NOW_MS
from tests.unit.log.test_log_durable import Home
from tests.unit.log.test_log_failing_disk import OTHER, ROOT, Logs

KEY = ("t", 0)
TOPIC_ID = UUID(int=1)


def copied(logs: Logs, log_dir: Path = OTHER, count: int | None = None) -> Log:
    """A future log with the first records of the log, by default all."""
    future = logs.manager.futures.create(logs.log, TOPIC_ID, log_dir)
    copy_records(logs.log, future, logs.log.log_end_offset if count is None else count)
    return future


def copy_records(log: Log, future: Log, end: int) -> None:
    while future.log_end_offset < end:
        data = b"".join(each.read() for each in log.read(future.log_end_offset, max_bytes=1).chunks)
        append_as_follower(future, data, now_ms=NOW_MS)


def test_there_is_one_future_log_until_it_is_deleted() -> None:
    logs = Logs()
    futures = logs.manager.futures
    assert futures.get(KEY) is None and not futures.delete(KEY)
    future = copied(logs)
    assert futures.get(KEY) is future and futures.topic_ids == {KEY: TOPIC_ID}
    assert logs.manager.placing.counts[OTHER] == 1
    directory = future.directory
    assert futures.delete(KEY) is True
    assert futures.get(KEY) is None and futures.topic_ids == {} and future.is_detached
    assert logs.manager.placing.counts[OTHER] == 0
    assert not logs.disk.exists(directory)
    logs.manager.removal.begin_removals()()
    assert [name for name in logs.disk.list_dir(OTHER) if name.startswith("t-")] == []
    assert logs.manager.get(KEY) is logs.log and not logs.log.is_detached


def test_a_future_log_that_is_only_removed_keeps_its_files() -> None:
    logs = Logs()
    future = copied(logs)
    assert logs.manager.futures.remove(KEY) is future
    assert logs.manager.futures.remove(KEY) is None
    assert logs.manager.futures.topic_ids == {}
    assert logs.disk.is_dir(future.directory)


def test_a_future_log_begins_at_the_log_start_and_is_durable_after_a_flush() -> None:
    logs = Logs()
    logs.append()
    logs.log.advance_log_start(1)
    future = logs.manager.futures.create(logs.log, TOPIC_ID, OTHER)
    assert (future.log_start_offset, future.log_end_offset) == (1, 1)
    assert future.config is logs.log.config
    assert future.directory in logs.disk.uncertain()
    future.flush()
    assert future.directory not in logs.disk.uncertain()


def test_offsets_of_an_earlier_log_in_the_directory_are_removed() -> None:
    """After a crash they would hide records of the new one."""
    logs = Logs(cleanup_policy=("compact",))
    moved = copied(logs)
    logs.manager.futures.replace(KEY)
    moved.flush()
    moved.cleaned_offset = 1
    moved.advance_log_start(1)
    logs.manager.checkpoint_work()()
    names = (RECOVERY_POINT, LOG_START, CLEANED)
    assert [read_offsets(logs.disk, OTHER / name) for name in names] == [{KEY: 1}] * 3
    logs.log = moved
    back = copied(logs, ROOT)
    logs.manager.futures.replace(KEY)
    logs.manager.removal.discard(moved)
    logs.log = back
    copied(logs, OTHER)
    assert [read_offsets(logs.disk, OTHER / name) for name in names[:2]] == [{}] * 2
    logs.manager.futures.replace(KEY)
    assert read_offsets(logs.disk, OTHER / CLEANED) == {}


def test_a_log_of_the_same_name_inherits_what_no_file_has() -> None:
    logs = Logs()
    logs.append()
    future = copied(logs)
    logs.log.advance_log_start(1)
    logs.log.config = LogConfig(retention_ms=7)
    logs.log.flush_state.last_flush_ms = 99

    def on_damage(segment: Segment, position: int) -> bool:
        return True

    logs.log.damage.on_damage = on_damage
    assert logs.manager.futures.replace(KEY) is future
    assert logs.manager.get(KEY) is future and logs.manager.futures.get(KEY) is None
    assert (future.log_start_offset, future.high_watermark, future.log_end_offset) == (1, 2, 2)
    assert future.producers is logs.log.producers and future.config is logs.log.config
    assert future.damage.on_damage is on_damage and future.flush_state.last_flush_ms == 99
    assert (future.directory, logs.manager.topic_id(KEY)) == (OTHER / "t-0", TOPIC_ID)
    assert future.cleaned_offset == 0
    assert (logs.manager.placing.counts[ROOT], logs.manager.placing.counts[OTHER]) == (0, 1)


def test_a_future_log_takes_the_place_of_a_log_that_is_gone() -> None:
    logs = Logs()
    future = copied(logs)
    logs.manager.logs.pop(KEY)
    assert logs.manager.futures.replace(KEY) is future
    assert logs.manager.get(KEY) is future and future.directory == OTHER / "t-0"


def test_leader_epochs_up_to_the_end_are_copied_and_stored() -> None:
    """Compaction may have removed the first records of one, and an epoch may begin at the end."""
    logs = Logs(cleanup_policy=("compact",))
    logs.log.assign_epoch(3, 1)
    logs.append()
    logs.log.assign_epoch(4, 2)
    future = copied(logs, count=1)
    future.flush()
    copy_leader_epochs(future, logs.log)
    assert future.epochs.entries() == [(0, 0), (3, 1)]
    future.flush()
    assert read_file(logs.disk, future.directory / LEADER_EPOCHS).decode().splitlines()[2:] == ["0 0", "3 1"]
    copy_leader_epochs(future, logs.log)
    assert future.flush_state.epochs_are_written, "nothing has changed"


@pytest.mark.parametrize(
    ("other_epochs", "is_continued"),
    [
        ([1, 1, 2, 2], True),
        ([1, 1, 2, 2, 2], True),
        ([1, 1, 2, 2, 3], True),
        ([1, 1, 2, 3, 3], False),
        ([1, 1, 1, 1, 3], False),
        ([1, 1, 1, 1, 1], False),
        ([1, 1, 2], False),
    ],
)
def test_another_log_continues_one_if_its_last_epoch_reaches_as_far(
    other_epochs: list[int], is_continued: bool
) -> None:
    one, other = Home(), Home()
    for home, epochs in ((one, [1, 1, 2, 2]), (other, other_epochs)):
        for epoch in epochs:
            home.append(epoch=epoch)
    assert is_continued_by(one.log, other.log) == is_continued


# -- a start ---------------------------------------------------------------------------------------------------------


def started_again(logs: Logs, assigned: Path | None) -> None:
    logs.manager.close()
    logs.disk.process_died()
    logs.manager = logs.started_without_load()
    for number, log_dir in enumerate(logs.manager.directories, 1):
        log_dir.directory_id = UUID(int=number)
    known = {ROOT: UUID(int=1), OTHER: UUID(int=2), None: None}
    loader = logs.manager.begin_load(assigned=lambda topic, number: known[assigned])
    for path in (ROOT, OTHER):
        while loader.open_some(path, FileCache(logs.disk)):
            pass
    logs.manager.finish_load(loader)


@pytest.mark.parametrize(("assigned", "count", "is_taken"), [(OTHER, 2, True), (OTHER, 1, False), (ROOT, 2, False)])
def test_a_start_takes_over_a_future_log_that_is_complete_and_assigned(
    assigned: Path, count: int, is_taken: bool
) -> None:
    logs = Logs()
    logs.append()
    copied(logs, count=count)
    started_again(logs, assigned)
    log, future = logs.manager.get(KEY), logs.manager.futures.get(KEY)
    assert log is not None and log.directory == (OTHER if is_taken else ROOT) / "t-0"
    assert (future is None) == is_taken
    assert any("the future log was complete, and replaces the log" in note for note in logs.manager.notes) == is_taken
    assert (log if future is None else future).partition_dir.files is logs.manager.files
    assert logs.manager.topic_id(KEY) == TOPIC_ID
    logs.manager.removal.begin_removals()()
    assert logs.disk.is_dir(ROOT / "t-0") != is_taken


def test_a_start_takes_over_a_future_log_whose_log_is_gone() -> None:
    logs = Logs()
    copied(logs)
    logs.manager.logs.pop(KEY).detach()
    logs.disk.remove_tree(ROOT / "t-0")
    started_again(logs, OTHER)
    log = logs.manager.get(KEY)
    assert log is not None and log.directory == OTHER / "t-0" and log.log_end_offset == 1
