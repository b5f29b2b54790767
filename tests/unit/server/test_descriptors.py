"""Who gets the descriptors of a process, and what happens to logs when all are taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.log.files import MAX_OPEN_FILES
from odradek.server.network.descriptors import Descriptors


@pytest.mark.parametrize("limit", [64, 128, 256, 1024, 20_000, 1 << 20])
def test_logs_and_peers_have_some_and_clients_at_least_half(limit: int) -> None:
    shared = Descriptors(limit)
    assert limit // 2 <= shared.clients_below < limit
    assert 16 <= shared.open_files <= MAX_OPEN_FILES
    assert limit < 256 or limit - shared.clients_below >= shared.open_files + 64


def test_without_a_limit_nothing_is_kept() -> None:
    assert Descriptors().clients_below == 2**31 - 1
    assert Descriptors().open_files == MAX_OPEN_FILES


FILES = """
import os, resource, socket, sys
from pathlib import Path
from odradek.common.real_io import SPARE_DESCRIPTORS, RealDisk
from odradek.log.files import FileCache

def take_all():
    taken = []
    try:
        while True:
            taken.append(socket.socket())
    except OSError:
        return taken

where = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
disk = RealDisk(workers=1)
disk.open(where / "first", create=True).close()
for turn in range(3):
    files = FileCache(disk)
    sockets = take_all()
    held = [files.get(where / f"{turn}-{number}", create=True) for number in range(SPARE_DESCRIPTORS - 1)]
    disk.sync_dir(where)
    held.append(files.get(where / f"{turn}-last", create=True))
    try:
        files.get(where / "too many", create=True)
        raise SystemExit("more files than descriptors")
    except OSError:
        pass
    # Nobody holds the others any more: the cache lets them go where a descriptor is needed.
    del held
    files.get(where / "too many", create=True)
    for each in sockets:
        each.close()
    disk.sync_dir(where)
before = len(os.listdir("/proc/self/fd"))
disk.close()
assert len(os.listdir("/proc/self/fd")) == before - SPARE_DESCRIPTORS
"""


def test_files_are_opened_while_sockets_hold_all_descriptors(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILES, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
