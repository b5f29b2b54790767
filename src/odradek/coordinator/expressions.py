"""Regular expressions of clients, in RE2's syntax; matching takes time linear in the text.

Kafka's coordinators use RE2J for the same reason: with Python's own expressions a client could block the broker. Linear
time is not enough: each letter of a text costs as much as the expression is large, so the expression's size is limited.
Captured groups are not used (RE2 keeps all groups of all states: gigabytes for ten thousand brackets).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from odradek.common.errors import ApiError, ErrorCode

T = TypeVar("T")

# Size of the expression in UTF-8. Parsing two thousand Unicode classes takes about 30 ms.
MAX_EXPRESSION_BYTES = 2048
# RE2's instructions: about one for each letter, more for repetitions such as `(abc){100}`. A text of 249 letters
# costs at most about 2 ms.
MAX_PROGRAM_SIZE = 2048
# RE2's own bound on the memory of one expression; the default is 8 MiB.
MAX_PROGRAM_BYTES = 1 << 20
# Limit of RE2's error text, which quotes the expression.
MAX_REASON_LETTERS = 200


class OffLoop(Protocol):
    """Runs blocking work off the loop: RE2 releases the interpreter lock while it matches."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


def matcher(expression: str, what: str) -> Callable[[str], bool]:
    """Return a function that says whether a whole string matches `expression`; `what` is its name in the error.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    import re2  # two megabytes that a broker without such subscriptions does not need

    if len(expression) > MAX_EXPRESSION_BYTES or len(expression.encode()) > MAX_EXPRESSION_BYTES:
        raise _invalid(f"{what} is longer than {MAX_EXPRESSION_BYTES} bytes.")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        compiled = re2.compile(expression, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        reason = reason[:MAX_REASON_LETTERS]
        raise _invalid(f"{what} `{expression}` is not a valid regular expression: {reason}.") from None
    # The module would keep the last 128 expressions, each with all its states.
    re2.purge()
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise _invalid(
            f"{what} `{expression}` is too large: it has {compiled.programsize} steps, at most {MAX_PROGRAM_SIZE} are "
            "taken. Use smaller counts."
        )
    return lambda text: compiled.fullmatch(text) is not None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
