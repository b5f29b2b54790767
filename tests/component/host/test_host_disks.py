"""Disks of a host that are new, replaced, or not mounted, and changes that a roll refuses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from odradek.common.errors import ConfigError
from odradek.common.real_io import RealDisk
from odradek.host.layout import LAYOUT_FILE, read_layout
from odradek.host.prepare import HostOptions, Prepared, check_disks, make_disks, planned_again, prepare


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    made = RealDisk()
    yield made
    made.close()


@pytest.fixture
def options(tmp_path: Path) -> HostOptions:
    return HostOptions(2, [tmp_path / "a", tmp_path / "b"], port=9092)


def begin(disk: RealDisk, options: HostOptions) -> Prepared:
    """A start, up to where brokers would run."""
    known = read_layout(disk, options.disks)
    if known is not None:
        check_disks(disk, options, known)
    make_disks(disk, options.disks)
    return prepare(disk, options, None, random=Random(1), now_ms=0)


def cluster_of(directory: Path) -> str:
    return next(line for line in (directory / "meta.properties").read_text().splitlines() if "cluster.id" in line)


def test_a_disk_that_was_replaced_remembers_the_host_too(disk: RealDisk, options: HostOptions) -> None:
    first, second = options.disks
    begin(disk, options)
    cluster = cluster_of(first / "broker-1")
    replaced = replace(options, replaced=True)
    for lost, broker in ((second, "broker-2"), (first, "broker-1")):
        shutil.rmtree(lost)
        begin(disk, replaced)
        assert cluster_of(lost / broker) == cluster
        assert (first / LAYOUT_FILE).read_bytes() == (second / LAYOUT_FILE).read_bytes()
    serials = (first / LAYOUT_FILE).read_bytes()
    begin(disk, options)
    assert (first / LAYOUT_FILE).read_bytes() == serials  # nothing is new


def test_a_disk_that_is_not_mounted_is_no_new_one(disk: RealDisk, options: HostOptions) -> None:
    begin(disk, options)
    lost = options.disks[1]
    shutil.rmtree(lost)
    with pytest.raises(ConfigError, match=f"{lost}: broker 2 was there.*--replace-disk"):
        begin(disk, options)
    assert not lost.exists()
    with pytest.raises(ConfigError, match="broker 2 was there"):  # though it is not named
        begin(disk, replace(options, disks=options.disks[:1]))
    assert not lost.exists()


def test_brokers_without_a_layout_file_get_no_new_cluster(disk: RealDisk, options: HostOptions) -> None:
    begin(disk, options)
    for each in options.disks:
        (each / LAYOUT_FILE).unlink()
    with pytest.raises(ConfigError, match=f"holds broker-1, and no disk has {LAYOUT_FILE}"):
        begin(disk, options)


def test_the_first_id_may_be_zero_and_does_not_change(disk: RealDisk, options: HostOptions) -> None:
    assert [each.broker_id for each in begin(disk, replace(options, first_id=0)).plan.brokers] == [0, 1]
    with pytest.raises(ConfigError, match="--first-id 7: the first broker here is 0"):
        begin(disk, replace(options, first_id=7))
    begin(disk, options)


def test_a_roll_takes_settings_but_does_not_move_the_pages(disk: RealDisk, options: HostOptions) -> None:
    prepared = begin(disk, options)
    file = prepared.plan.brokers[0].config
    moved = replace(options, override=["odradek.metrics.listener=127.0.0.1:9399", "message.max.bytes=7"])
    with pytest.raises(ConfigError, match=r"odradek\.metrics\.listener: cannot change"):
        planned_again(disk, moved, prepared)
    assert "message.max.bytes" not in file.read_text()
    planned_again(disk, replace(options, override=["message.max.bytes=7"]), prepared)
    assert "message.max.bytes=7" in file.read_text()
