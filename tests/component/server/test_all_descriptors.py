"""Logs in a process whose descriptors are all taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILES = """
import os, resource, socket, sys
from pathlib import Path
from odradek.common.real_io import SPARE_DESCRIPTORS, RealDisk
from odradek.log.files import FileCache

def open_all():
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
    sockets = open_all()
    held = [files.get(where / f"{turn}-{number}", create=True) for number in range(SPARE_DESCRIPTORS - 1)]
    disk.sync_dir(where)
    held.append(files.get(where / f"{turn}-last", create=True))
    try:
        files.get(where / "too many", create=True)
        raise SystemExit("more files than descriptors")
    except OSError:
        pass
    # The others have no user any more: the cache closes them where a descriptor is needed.
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
