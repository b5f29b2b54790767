"""Our sentence out of what Spark raises: it stands between traces of Python and Java, and a plan of the query.

Spark raises its own exceptions with the trace of the Python process that failed as their text. Behind it a streaming
query puts its offsets and its plan, so that the last lines on the screen say nothing of what to do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import TracebackType

from pyspark_odradek.errors import FencedError

_OURS = re.compile(r"^pyspark_odradek\.errors\.\w+: (.+)$", re.MULTILINE)


def reason(error: BaseException | None) -> str | None:
    """Why a query has ended, in the one sentence that this package has for it; None where the error is not ours.

    Args:
        error: of a query, as raised or from its `exception()`.
    """
    found = _OURS.findall(str(error))
    return found[-1] if found else None


def is_fenced(error: BaseException | str | None) -> bool:
    """Whether a query has ended because another driver runs on its checkpoint, or is ahead of it.

    Do not start it again then: it would fence the other driver, and be fenced in turn.

    Args:
        error: of a query, as raised, from its `exception()`, or as text.
    """
    return has_raised(error, FencedError)


def has_raised(error: BaseException | str | None, kind: type[Exception]) -> bool:
    """Whether an error, or the text of one, has a trace of this class of ours; subclasses do not count."""
    return re.search(rf"^{re.escape(kind.__module__)}\.{kind.__name__}: ", str(error), re.MULTILINE) is not None


class _Hook:
    """The hook for errors that end a program: it calls the previous hook and adds our sentence."""

    def __init__(self, before: Callable[[type[BaseException], BaseException, TracebackType | None], object]) -> None:
        self._before = before

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._before(kind, error, trace)
        if (why := reason(error)) is not None:
            sys.stdout.flush()
            sys.stderr.write(f"\nodradek: {why}\n")


def print_at_the_end() -> None:
    """Let a program that ends by an error of ours print the sentence behind the trace; a second call does nothing."""
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(sys.excepthook)
