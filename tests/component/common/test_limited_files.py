"""The real disk in a process whose files may not grow."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.common.real_io import MAX_IO_VECTORS

LIMITED = """
import resource, sys
from pathlib import Path
from odradek.common.real_io import RealDisk
path, limit, size, pieces = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
disk = RealDisk(workers=1)
file = disk.open(path, create=True)
try:
    file.write_at(0, [b"x" * size] * pieces)
except OSError as error:
    print(error.errno)
disk.close()
"""


@pytest.mark.parametrize("pieces", [1, 4, MAX_IO_VECTORS + 5])
def test_a_short_write_before_an_error_is_reported(tmp_path: Path, pieces: int) -> None:
    """A process whose files may have no more bytes than so many: the first write is short, the next one fails."""
    limit = 1000
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "log"), str(limit), str(3000 // pieces), str(pieces)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(errno.EFBIG)
    assert (tmp_path / "log").read_bytes() == b"x" * limit
