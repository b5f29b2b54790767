"""The sandbox of a world: while it runs, real threads, sockets, processes, files and sleeps fail at once.

Code that takes a port (Clock, Disk, Network) gets the simulated thing. Code that reaches past them would let runs
of one seed differ, or touch the machine on which the simulation runs; the error names the stack that did it.
"""

from __future__ import annotations

import _thread
import builtins
import io
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import odradek
from odradek.common.buggify import Hook

# Files of the program, its source and its tables, are the same in every run and may be read.
PROGRAM = str(Path(odradek.__file__).parent) + os.sep
# The lines of the stack of code that reached out of the sandbox.
STACK_LINES = 12
# The owner, the name in it, and its replacement. Imports do not pass here: they have functions of their own.
GUARDED: tuple[tuple[Any, str, str], ...] = (
    (threading.Thread, "start", "a thread"),
    (_thread, "start_new_thread", "a thread"),
    (socket.socket, "__init__", "a socket"),
    (subprocess.Popen, "__init__", "a process"),
    (os, "fork", "a process"),
    (os, "posix_spawn", "a process"),
    (os, "system", "a process"),
    (builtins, "open", "a file"),
    (io, "open", "a file"),
    (os, "open", "a file"),
    (os, "mkdir", "a directory"),
    (os, "listdir", "a directory"),
    (os, "scandir", "a directory"),
    (os, "rename", "a file's name"),
    (os, "replace", "a file's name"),
    (os, "remove", "a file's name"),
    (os, "unlink", "a file's name"),
    (time, "sleep", "a real sleep"),
)


class EscapedTheBoxError(AssertionError):
    """Code inside the simulation reached for a real thread, socket, process, file or sleep."""


def escaped(what: str) -> EscapedTheBoxError:
    """The error that names `what` was reached for, and by whom."""
    stack = "".join(traceback.format_stack(sys._getframe(2), limit=STACK_LINES))
    return EscapedTheBoxError(f"{what} inside the simulation: take the port (Clock, Disk, Network) instead\n{stack}")


def reads_the_program(path: Any = None, mode: Any = "r", *args: Any, **options: Any) -> bool:
    """Whether this call of `open` only reads a file of the program itself."""
    return isinstance(path, str | os.PathLike) and mode in ("r", "rb") and os.fspath(path).startswith(PROGRAM)


def only_here(hook: Hook, *, elsewhere: Hook) -> Hook:
    """A hook for the thread that calls this: a broker that runs in another one is not in the box, and draws nothing of
    its chance."""
    inside = threading.get_ident()

    def decide(point: str) -> Awaitable[None]:
        return hook(point) if threading.get_ident() == inside else elsewhere(point)

    return decide


@contextmanager
def closed(on_escape: Callable[[EscapedTheBoxError], None]) -> Iterator[None]:
    """Close the box. `on_escape` is called for each attempt: the code may catch everything that is raised here.

    Threads that ran before are not in the box, and nothing in it can start one: they may do as they please.
    """
    inside = threading.get_ident()

    def forbidden(what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def reached_out(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != inside:
                return original(*args, **options)
            if what == "a file" and reads_the_program(*args, **options):
                return original(*args, **options)
            error = escaped(what)
            on_escape(error)
            raise error

        return reached_out

    kept = [getattr(owner, name) for owner, name, _ in GUARDED]
    for (owner, name, what), original in zip(GUARDED, kept, strict=True):
        setattr(owner, name, forbidden(what, original))
    try:
        yield
    finally:
        for (owner, name, _), original in zip(GUARDED, kept, strict=True):
            setattr(owner, name, original)
