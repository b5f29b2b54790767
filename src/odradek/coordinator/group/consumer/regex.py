"""The topics that regular expressions of subscriptions match (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from odradek.coordinator.expressions import matcher
from odradek.coordinator.group.consumer.topics import TopicsView

# How many expressions are cached: each heartbeat after a change of the topics needs the matches.
MAX_REMEMBERED = 1000
# Up to this many topics are matched on the loop: about 100 ms for the worst expression, microseconds for most.
MATCHED_ON_LOOP = 50
# Heartbeat interval of a member whose expression is new to its group, until its matches take effect.
MATCHED_AFTER_MS = 100


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """The topics that a client may describe.

    Attributes:
        version: rises with each change of permissions.
    """

    allows: Callable[[str], bool]
    version: int = 0


EVERY_TOPIC = TopicFilter(lambda _: True)


@dataclass(frozen=True, slots=True)
class _Match:
    """The topics of one view that an expression matches; all expressions share the view's names."""

    version: int
    seen: Collection[str]
    names: tuple[str, ...]


class TopicMatches:
    """A cache of matches, so that an expression is matched against each topic once.

    A heartbeat is handled on the loop, in one step. Longer matching is done before, in a thread.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Match] = {}

    def topics(self, regex: str, view: TopicsView) -> tuple[str, ...]:
        """The names of the topics that match the whole expression, in order.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        known = self._known.get(regex)
        if known is None or known.version != view.version:
            known = _match(regex, view, known)
            self.store(regex, known)
        return known.names

    def is_long(self, regex: str, view: TopicsView) -> bool:
        """Whether matching is too long for the loop: see `begin`."""
        known = self._known.get(regex)
        if known is None or len(view.by_name) <= MATCHED_ON_LOOP:
            return len(view.by_name) > MATCHED_ON_LOOP
        if known.version >= view.version:
            return False
        return sum(name not in known.seen for name in view.by_name) > MATCHED_ON_LOOP

    def begin(self, regex: str, view: TopicsView) -> Callable[[], _Match]:
        """Return the function to run in a thread; pass its result to `store`. It raises as `topics` does."""
        known = self._known.get(regex)
        return lambda: _match(regex, view, known)

    def store(self, regex: str, match: _Match) -> None:
        """Store a match; the expression that was matched longest ago is evicted if the cache is full."""
        self._known.pop(regex, None)
        self._known[regex] = match
        if len(self._known) > MAX_REMEMBERED:
            self._known.pop(next(iter(self._known)))


def _match(regex: str, view: TopicsView, known: _Match | None) -> _Match:
    """Match only names that the expression has not been matched against."""
    matches = matcher(regex, "SubscribedTopicRegex")
    seen: Collection[str] = known.seen if known is not None else ()
    names = {name for name in known.names if name in view.by_name} if known is not None else set()
    names.update(name for name in view.by_name if name not in seen and matches(name))
    return _Match(view.version, view.by_name.keys(), tuple(sorted(names)))
