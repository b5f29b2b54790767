"""Becomes the process of a broker: bound to a core where that is asked for, and not left behind by the host's process.

A script of its own, by the standard library alone, because it runs before the interpreter of every broker.
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

        # A broker whose host was killed stops in good order: nothing would watch it, and none could start in its place.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == int(parent):
        os.execv(command[0], command)  # noqa: S606 - our own interpreter and module


if __name__ == "__main__":
    main()
