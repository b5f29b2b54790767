"""A node on a slow disk: each sync takes MS milliseconds longer.

`python -m tests.support.disks.slow_sync MS COMMAND…`

It takes the place of the command that it is put before: the same process, but for `os.fsync` and `os.fdatasync`.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable


def launcher(delay_ms: int) -> tuple[str, ...]:
    """The words before the command of a node that make its syncs slow."""
    return (sys.executable, "-m", "tests.support.disks.slow_sync", str(delay_ms))


def _slow(sync: Callable[[int], None], delay_s: float) -> Callable[[int], None]:
    def slow(fd: int) -> None:
        time.sleep(delay_s)
        sync(fd)

    return slow


def main() -> None:
    delay_s = int(sys.argv[1]) / 1000
    os.fsync, os.fdatasync = _slow(os.fsync, delay_s), _slow(os.fdatasync, delay_s)  # type: ignore[assignment]  # of the same signature
    module = sys.argv.index("-m", 2) + 1
    sys.argv = sys.argv[module:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
