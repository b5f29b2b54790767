"""Becomes the process of a broker: bound to a core if requested, and stopped with the host's process.

A separate script that uses only the standard library, because it runs before every broker.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """`begin.py CORE PARENT COMMAND…`: CORE is a number, or `-` for any; PARENT is the pid of the host's process."""
    core, parent, *command = sys.argv[1:]
    if core != "-" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core)})
    if sys.platform == "linux":
        import ctypes

        # A broker stops cleanly when its host is killed: otherwise it is not watched, and blocks another start.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == int(parent):
        os.execv(command[0], command)  # noqa: S606 - our own interpreter and module


if __name__ == "__main__":
    main()
