"""The ballast fills the disks of tests, even if other processes write there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.disks.file_system import Ballast, small_tmpfs

MIB = 1 << 20
PAGE_BYTES = 4096


@pytest.mark.parametrize("leave_bytes", [0, 2 * PAGE_BYTES])
def test_all_is_taken_though_others_write_after_the_free_space_was_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave_bytes: int
) -> None:
    with small_tmpfs(tmp_path / "disk", MIB) as mounted:
        count, written = os.statvfs, [0, 0, 0]

        def counts_and_is_late(path: Path) -> os.statvfs_result:
            counted = count(path)
            if written:
                written.pop()
                with (mounted / "other").open("ab") as file:
                    file.write(bytes(3 * PAGE_BYTES))
            return counted

        monkeypatch.setattr(os, "statvfs", counts_and_is_late)
        Ballast(mounted).fill(leave_bytes=leave_bytes)
        left = count(mounted)
        assert left.f_bavail * left.f_frsize == leave_bytes
