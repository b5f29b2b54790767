"""Regular expressions that clients send, in RE2's syntax and in time linear in what they are matched against.

Kafka's coordinators use RE2J, for the same reason: Python's own would let a client hang the broker. Linear is not
enough, though: each letter of a text costs as much as the expression is large, so its size has a limit, too, and what
its groups have captured is not asked for (RE2 keeps all groups of all states: gigabytes for ten thousand brackets).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from odradek.common.errors import ApiError, ErrorCode

T = TypeVar("T")

# Of the expression, in UTF-8. To parse two thousand Unicode classes takes some 30 ms.
MAX_EXPRESSION_BYTES = 2048
# RE2's instructions, about one for each letter and more for what is counted, as in `(abc){100}`. A text of 249 letters
# costs at most some 2 ms.
MAX_PROGRAM_SIZE = 2048
# RE2's own bound on the memory of one expression; the default is 8 MiB.
MAX_PROGRAM_BYTES = 1 << 20
# Of the reason that RE2 gives, which quotes the expression.
MAX_REASON_LETTERS = 200


class OffLoop(Protocol):
    """Runs what takes long while the loop serves others: RE2 lets go of the interpreter while it matches."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


def matcher(expression: str, what: str) -> Callable[[str], bool]:
    """Whether a whole string matches `expression`; `what` names it in the error.

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
    # The module would keep the last 128 expressions, each with all the states that it ever was in.
    re2.purge()
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise _invalid(
            f"{what} `{expression}` is too large: it has {compiled.programsize} steps, at most {MAX_PROGRAM_SIZE} are "
            "taken. Use smaller counts."
        )
    return lambda text: compiled.fullmatch(text) is not None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
