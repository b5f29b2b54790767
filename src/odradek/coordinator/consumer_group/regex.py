"""Regular expressions of subscriptions, in RE2's syntax and in time linear in the topic's name.

Kafka's coordinator uses RE2J, for the same reason: the expression comes from a client.
"""

from __future__ import annotations

import re2

from odradek.common.errors import ApiError, ErrorCode
from odradek.coordinator.consumer_group.topics import TopicsView

# RE2's own bound on the memory of one expression; the default is 8 MiB.
MAX_PROGRAM_BYTES = 1 << 20


def matching_topics(regex: str, view: TopicsView) -> tuple[str, ...]:
    """The names of the topics that match the whole expression, in order.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        pattern = re2.compile(regex, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from None
    return tuple(name for name in sorted(view.by_name) if pattern.fullmatch(name))
