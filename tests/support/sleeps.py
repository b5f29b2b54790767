"""Tests that count the pauses of the code under test, without pausing."""

from __future__ import annotations

import threading
import time

import pytest


def without_sleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let this thread sleep no more; returns the seconds that it would have slept.

    Other threads go on: py4j's finalizer of a Spark session sleeps a second at a time while the process lives.
    """
    sleep, here, slept = time.sleep, threading.get_ident(), list[float]()
    monkeypatch.setattr(time, "sleep", lambda s: slept.append(s) if threading.get_ident() == here else sleep(s))
    return slept
