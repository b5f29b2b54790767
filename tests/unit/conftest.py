"""Forbids unit tests to wait, to open sockets and to start processes, so that they can run between edits."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

# Audit events that the interpreter raises beforehand (PEP 578). The pair of sockets of an event loop is none of them.
REFUSED = frozenset({"socket.bind", "socket.connect", "subprocess.Popen", "os.posix_spawn", "os.fork"})
_watching = False
_sleep = time.sleep


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in REFUSED:
        raise AssertionError(f"a unit test does without {event}: its place is tests/component")


def _no_sleep(seconds: float) -> None:
    # A thread of the product may wait for its turn; the test itself waits for nothing.
    if threading.current_thread() is not threading.main_thread():
        return _sleep(seconds)
    raise AssertionError(f"a unit test does not sleep for {seconds} s: its place is tests/component")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that sleeps, opens a socket or starts a process fails where it does so."""
    global _watching
    monkeypatch.setattr(time, "sleep", _no_sleep)
    _watching = True
    yield
    _watching = False
