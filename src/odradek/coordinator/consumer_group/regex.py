"""Regular expressions of subscriptions (KIP-848)."""

from __future__ import annotations

from odradek.coordinator.consumer_group.topics import TopicsView
from odradek.coordinator.expressions import matcher


def matching_topics(regex: str, view: TopicsView) -> tuple[str, ...]:
    """The names of the topics that match the whole expression, in order.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    matches = matcher(regex, "SubscribedTopicRegex")
    return tuple(name for name in sorted(view.by_name) if matches(name))
