"""Finds sockets, transports, files and processes that a test has left open, by the garbage collector.

Python warns when it collects such an object, which may be long after its test, during another one. So the collector
runs after each test that had an event loop, and after each file. It has little to look at: objects that survive a file,
its modules above all, are excluded from later collections.
"""

from __future__ import annotations

import gc
import inspect
import sys
import warnings

import pytest

# There programs of others run in the tests' process, which leave open what they like: that is said, and fails nothing.
OF_OTHERS = frozenset({"spark", "interop"})


def check_leaks(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Raises AssertionError where a test, or one before it in its file, has left something open."""
    ends_file = nextitem is None or nextitem.path != item.path
    had_loop = inspect.iscoroutinefunction(getattr(item, "obj", None))
    found = left_open() if ends_file or had_loop else []
    if ends_file:
        gc.freeze()
    if not found:
        return
    what = f"{item.nodeid}, or a test before it in its file, has left open: " + "; ".join(found)
    if OF_OTHERS.isdisjoint(item.path.parts):
        raise AssertionError(what)
    sys.stderr.write(what + "\n")


def left_open() -> list[str]:
    """Collect all garbage; return a line for each object in it that was not closed or never awaited."""
    found: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: found.append(f"{unraisable.object!r}: {unraisable.exc_value!r}")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.collect()
    finally:
        sys.unraisablehook = before
    return found + [
        str(each.message) for each in caught if issubclass(each.category, (ResourceWarning, RuntimeWarning))
    ]
