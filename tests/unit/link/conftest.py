"""A mirror's partition over a real log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from odradek.common.real_io import RealDisk
from odradek.link.mirroring import MirroredPartition
from odradek.log.config import LogConfig
from odradek.log.files import FileCache
from odradek.log.opening import close_log, open_log
from odradek.metadata.model import PartitionImage
from odradek.replica.leadership import apply_image
from odradek.replica.partition import Partition
from tests.support.models.batches import NOW_MS

ME = 1


@pytest.fixture
def mirrored(tmp_path: Path) -> Iterator[MirroredPartition]:
    path = tmp_path / "t-0"
    path.mkdir()
    log = open_log(FileCache(RealDisk(workers=1)), path, ("t", 0), LogConfig(), now_ms=NOW_MS)
    partition = Partition("t", 0, UUID(int=5), log, broker_id=ME)
    partition.is_mirror = True
    apply_image(partition, PartitionImage((ME, 2), (ME,), ME, 7, 0))
    yield MirroredPartition(partition, UUID(int=9), "t", source_leader=4, source_epoch=5)
    close_log(log)
