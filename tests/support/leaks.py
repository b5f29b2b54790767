"""What a test has left open: sockets, transports, files, processes that the garbage collector finds.

Python says so when an object is collected, which may be long after its test, amid another one. So the collector runs
behind each test that had an event loop, and behind each file. It looks at little: what a file leaves for good, its
modules above all, is not looked at again.
"""

from __future__ import annotations

import gc
import inspect
import sys
import warnings

import pytest

# There programs of others run in the tests' process, which leave open what they like: that is said, and fails nothing.
OF_OTHERS = frozenset({"spark", "interop"})


def look_behind(item: pytest.Item, nextitem: pytest.Item | None) -> None:
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
    """What was not closed, or never awaited, of all that is garbage now; all of it is collected."""
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
