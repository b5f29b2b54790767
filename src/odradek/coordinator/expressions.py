"""Regular expressions that clients send, in RE2's syntax and in time linear in what they are matched against.

Kafka's coordinators use RE2J, for the same reason: Python's own would let a client hang the broker.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.common.errors import ApiError, ErrorCode

# RE2's own bound on the memory of one expression; the default is 8 MiB.
MAX_PROGRAM_BYTES = 1 << 20


def matcher(expression: str, what: str) -> Callable[[str], bool]:
    """Whether a whole string matches `expression`; `what` names it in the error.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    import re2  # two megabytes that a broker without such subscriptions does not need

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        compiled = re2.compile(expression, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{what} `{expression}` is not a valid regular expression: {reason}."
        ) from None
    return lambda text: compiled.fullmatch(text) is not None
