"""A leader of an old source over a real log: what it requests, and when it writes a failback file and cuts the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.common.errors import ApiError, ErrorCode
from odradek.link import failback
from odradek.link.failback import Failback
from odradek.link.measures import NO_REASON, Why, measure
from odradek.link.mirroring import MirroredPartition
from odradek.log import failback_file
from odradek.log.epoch_cache import EpochCache
from odradek.metadata.model import PartitionImage
from odradek.record.batch import patch_base_offset, patch_leader_epoch
from odradek.record.control import transaction_marker
from odradek.replica.leadership import apply_image
from odradek.settings.links import Link, Mirror, MirrorState
from tests.support.models.batches import NOW_MS, batch

ME, OTHER = 1, 2
SOURCE_ID = UUID(int=9)
BELOW = 8


class Now:
    def now_ms(self) -> int:
        return NOW_MS


class NoReasons:
    def of(self, *names: str) -> Any:
        return NO_REASON


@dataclass
class World:
    """The source's log as its epochs, and the requests to our controller."""

    mirrored: MirroredPartition
    epochs: list[int] = field(default_factory=lambda: [3, 3, 8, 8, 8])
    is_same: bool = True
    noted: list[dict[str, str]] = field(default_factory=list)
    begun: list[tuple[str, int]] = field(default_factory=list)
    before_cut: Callable[[], None] = lambda: None
    odd: bool = False

    def __post_init__(self) -> None:
        self.mirror = Mirror("back", "t", MirrorState.FAILBACK, SOURCE_ID, agreed_below=BELOW)
        topic_manager = SimpleNamespace(set=self._note)
        self.work = Failback(cast(Any, Now()), cast(Any, self), lambda: cast(Any, topic_manager))

    async def _note(self, changes: dict[str, str]) -> None:
        if "odradek.link.back.begun.0.t" in changes:
            self.begun.append((changes["odradek.link.back.begun.0.t"], self.end))
        else:
            self.noted.append(changes)

    async def epoch_end(self, _: object, topic: str, number: int, epoch: int, **leader: int) -> tuple[int, int]:
        assert leader == {"leader_id": 4, "leader_epoch": 11}
        cache = EpochCache()
        for offset, each in enumerate(self.epochs):
            cache.assign(each, offset)
        return cache.end_offset_for(epoch, len(self.epochs))

    async def list_offsets(self, _: object, asked: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return {} if self.odd else dict.fromkeys(asked, 0)

    async def same_topics(self, *_: object) -> set[str]:
        return {"t"} if self.is_same else set()

    async def write_failback_file(self, log: Any, offset: int, path: Path, tell: Any) -> int:
        self.before_cut()
        return int(await failback_file.write_failback_file(log, offset, path, tell))

    def round(self) -> None:
        link = Link("back", "a:1", {"t": self.mirror})
        asyncio.run(self.work.round(cast(Any, None), lambda: link, lambda: [self.mirrored]))

    def lead(self, leader_epoch: int, leader: int = ME, replicas: tuple[int, ...] = (ME,)) -> None:
        epoch = self.mirrored.partition.partition_epoch + 1
        apply_image(self.mirrored.partition, PartitionImage(replicas, replicas, leader, leader_epoch, epoch))

    @property
    def end(self) -> int:
        return self.mirrored.partition.log.log_end_offset

    @property
    def files(self) -> list[Path]:
        return sorted(self.mirrored.partition.log.log_dir.glob("*failback*"))


@pytest.fixture
def world(mirrored: MirroredPartition, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(mirrored)
    mirrored.source_epoch, mirrored.is_paused = 11, True
    mirrored.partition.is_failing_back = True
    made.lead(12)
    for offset, epoch in enumerate((3, 3, 3, 8)):
        data = bytearray(batch(b"a"))
        patch_base_offset(data, offset)
        patch_leader_epoch(data, epoch)
        mirrored.partition.append_mirrored(data, now_ms=NOW_MS)
    for name in ("epoch_end", "list_offsets", "same_topics", "write_failback_file"):
        monkeypatch.setattr(failback, name, getattr(made, name))
    return made


def test_records_are_written_to_a_file_truncated_and_registered(world: World) -> None:
    world.round()
    assert world.end == 2
    assert world.noted == [{"odradek.link.back.cut.0.t": "2@12"}]
    assert world.begun == [("12", 4)], "before anything went"
    (file,) = world.files
    assert file.name == f"t-0.00000000000000000002.failback-12-{world.mirrored.partition.topic_id.hex}.log"
    shown = measure(world.mirrored, cast(Any, NoReasons()), NOW_MS).shown()
    assert shown["state"] == "failback"
    assert shown["cut"] == {"offset": 2, "broker": ME, "file": str(file), "bytes": file.stat().st_size}
    world.mirror.cuts[0] = 2
    world.round()
    assert len(world.noted) == 1, "what is noted is done"


def test_the_next_leader_finds_nothing_to_cut_any_more(world: World) -> None:
    world.round()
    world.lead(13)
    world.round()
    assert world.end == 2
    assert world.noted == [{"odradek.link.back.cut.0.t": f"2@{epoch}"} for epoch in (12, 13)]
    assert len(world.files) == 1
    assert world.mirrored.cut is not None
    assert world.mirrored.cut.file == world.files[0]


def test_replicas_that_did_not_ask_yet_are_waited_for(world: World) -> None:
    world.lead(13, replicas=(ME, OTHER))
    world.round()
    assert world.end == 2
    assert world.noted == []
    assert world.mirrored.reason.why is Why.FAILBACK
    assert f"[{OTHER}]" in world.mirrored.reason.text


@pytest.mark.parametrize("is_led", [True, False])
def test_a_leadership_that_ends_as_it_is_written_aside_cuts_nothing(world: World, *, is_led: bool) -> None:
    world.before_cut = lambda: world.lead(13, ME if is_led else OTHER, (ME, OTHER))
    world.round()
    assert world.end == 4
    assert world.noted == []


def test_records_that_cannot_be_written_to_a_file_are_not_truncated(world: World) -> None:
    def full() -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left")

    world.before_cut = full
    world.round()
    assert world.end == 4
    assert "No space" in world.mirrored.reason.text
    world.before_cut = lambda: None
    world.round()
    assert world.end == 2
    assert world.mirrored.reason == NO_REASON


@pytest.mark.parametrize(("policy", "cleaned", "end"), [(("delete",), 0, 2), (("delete",), 1, 0), (("compact",), 0, 0)])
def test_a_log_that_may_be_compacted_beyond_the_cut_starts_over(
    world: World, policy: tuple[str, ...], cleaned: int, end: int
) -> None:
    """A cleaning that was given up has dropped records, and is in no checkpoint."""
    log = world.mirrored.partition.log
    log.config = replace(log.config, cleanup_policy=policy)
    log.cleaned_offset = cleaned
    world.round()
    assert world.end == end
    assert world.files[0].name == f"t-0.{end:020}.failback-12-{world.mirrored.partition.topic_id.hex}.log"


def test_another_topic_of_its_name_at_the_source_cuts_nothing(world: World) -> None:
    world.is_same = False
    world.round()
    assert world.end == 4
    assert world.mirrored.reason.why is Why.RECREATED


@pytest.mark.parametrize(("leader", "epoch"), [(-1, 11), (4, BELOW - 1)])
def test_a_leader_of_the_source_from_before_its_promotion_is_not_asked(world: World, leader: int, epoch: int) -> None:
    world.mirrored.source_leader, world.mirrored.source_epoch = leader, epoch
    world.round()
    assert world.end == 4
    assert "no leader" in world.mirrored.reason.text


def test_a_file_that_is_finished_is_not_written_again(world: World) -> None:
    """The in-sync set changes as it is written: the cut waits, and the round after takes the file."""
    in_sync = world.mirrored.partition.in_sync
    written: list[int] = []

    def begins_to_change() -> None:
        written.append(world.end)
        in_sync.pending = cast(Any, object())

    world.before_cut = begins_to_change
    for _ in range(3):
        world.round()
    assert (world.end, written) == (4, [4])
    in_sync.pending = None
    world.round()
    assert (world.end, written, len(world.files)) == (2, [4], 1)
    assert world.mirrored.cut is not None
    assert world.mirrored.cut.file == world.files[0]


def test_a_source_that_does_not_answer_for_a_partition_is_a_reason(world: World) -> None:
    world.odd = True
    world.round()
    assert world.end == 4
    assert "did not return the log start offset of t-0" in world.mirrored.reason.text


def test_settings_that_change_as_it_is_written_aside_are_heeded(world: World) -> None:
    """The log may have been compacted since it was compared."""
    log = world.mirrored.partition.log

    def compacts() -> None:
        log.config = replace(log.config, cleanup_policy=("compact",))

    world.before_cut = compacts
    world.round()
    assert world.end == 4
    world.round()
    assert (log.log_start_offset, world.end) == (0, 0)


def test_a_log_with_gaps_below_the_cut_was_compacted(world: World) -> None:
    """Its checkpoint may be lost, or it was copied from a replica that was compacted."""
    log = world.mirrored.partition.log
    for offset, epoch in ((6, 8), (9, 8)):
        data = bytearray(batch(b"a"))
        patch_base_offset(data, offset)
        patch_leader_epoch(data, epoch)
        world.mirrored.partition.append_mirrored(data, now_ms=NOW_MS)
    world.round()
    assert world.end == 2, "what lacks was to be cut"
    data = bytearray(batch(b"a"))
    patch_base_offset(data, 3)
    patch_leader_epoch(data, 3)
    world.mirrored.partition.append_mirrored(data, now_ms=NOW_MS)
    world.epochs = [3] * 4 + [8] * 3
    data = bytearray(batch(b"a"))
    patch_base_offset(data, 4)
    patch_leader_epoch(data, 8)
    world.mirrored.partition.append_mirrored(data, now_ms=NOW_MS)
    world.lead(13)
    world.round()
    assert (log.log_start_offset, world.end) == (0, 0)


def test_the_file_of_a_failback_is_known_after_a_restart(world: World) -> None:
    world.round()
    partition = world.mirrored.partition
    assert world.mirrored.cut is not None
    known = failback.known_cut(partition)
    assert known == replace(world.mirrored.cut, leader_epoch=12)
    # The next leader's process has cut nothing, and names the file all the same.
    world.mirrored.cut = None
    world.lead(13)
    world.round()
    assert world.mirrored.cut == replace(known, leader_epoch=13)


@pytest.mark.parametrize("first_epoch", [12, 13])
def test_the_file_of_a_failback_before_is_not_named(world: World, first_epoch: int) -> None:
    world.round()
    world.mirrored.cut = None
    world.mirror.leader_epoch = first_epoch
    world.lead(13)
    world.round()
    assert len(world.files) == 1
    assert world.mirrored.cut is not None
    assert world.mirrored.cut.file == (world.files[0] if first_epoch == 12 else None)


def transactional(world: World, *producers: int, offset: int, epoch: int) -> None:
    for number, producer_id in enumerate(producers):
        data = bytearray(batch(b"a", producer_id=producer_id, producer_epoch=0, sequence=0, transactional=True))
        patch_base_offset(data, offset + number)
        patch_leader_epoch(data, epoch)
        world.mirrored.partition.append_mirrored(data, now_ms=NOW_MS)


def test_transactions_that_are_open_at_the_cut_are_written_aside_whole(world: World) -> None:
    """The source has aborted them, and here they may have been committed since."""
    world.round()
    transactional(world, 7, 8, offset=2, epoch=3)
    marker = bytearray(
        transaction_marker(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)
    )
    patch_base_offset(marker, 4)
    patch_leader_epoch(marker, 3)
    world.mirrored.partition.append_mirrored(marker, now_ms=NOW_MS)
    transactional(world, 9, offset=5, epoch=8)
    world.epochs = [3] * 5 + [8]
    world.lead(13)
    world.round()
    assert world.end == 5
    assert world.files[-1].name.startswith("t-0.00000000000000000003.failback-13-")
    # Nothing is to be cut any more, and the transaction is open still.
    world.lead(14)
    world.round()
    assert world.end == 5
    assert world.files[-1].name.startswith("t-0.00000000000000000003.failback-14-")
    assert [epoch for epoch, _ in world.begun] == ["12", "13"]
