"""Regular expressions of subscriptions (KIP-848), and which topics they match."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from odradek.coordinator.expressions import matcher
from odradek.coordinator.group.consumer.topics import TopicsView

# How many expressions are remembered: their members ask with every heartbeat after a topic was made or deleted.
MAX_REMEMBERED = 1000
# So many topics are matched where the heartbeat is handled: about 100 ms of the worst expression, microseconds of most.
MATCHED_ON_LOOP = 50
# When a member with an expression that is new to its group is to come back for the topics that it matches.
MATCHED_AFTER_MS = 100


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Which topics the client that asks may know of.

    Attributes:
        version: rises with each change of permissions.
    """

    allows: Callable[[str], bool]
    version: int = 0


EVERY_TOPIC = TopicFilter(lambda _: True)


@dataclass(frozen=True, slots=True)
class _Match:
    """What an expression matches of the topics of one view, whose names are shared by all expressions."""

    version: int
    seen: Collection[str]
    names: tuple[str, ...]


class TopicMatches:
    """What was matched, so that an expression sees each topic once.

    A heartbeat is decided on the loop, in one step. What takes longer is matched before, in a thread.
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
            self.keep(regex, known)
        return known.names

    def is_long(self, regex: str, view: TopicsView) -> bool:
        """Whether to match takes so long that it is not for the loop: see `begin`."""
        known = self._known.get(regex)
        if known is None or len(view.by_name) <= MATCHED_ON_LOOP:
            return len(view.by_name) > MATCHED_ON_LOOP
        if known.version >= view.version:
            return False
        return sum(name not in known.seen for name in view.by_name) > MATCHED_ON_LOOP

    def begin(self, regex: str, view: TopicsView) -> Callable[[], _Match]:
        """What to do in a thread; `keep` takes what it returns. It raises as `topics` does."""
        known = self._known.get(regex)
        return lambda: _match(regex, view, known)

    def keep(self, regex: str, match: _Match) -> None:
        """Remember what was matched; the expression that was matched longest ago is forgotten for it."""
        self._known.pop(regex, None)
        self._known[regex] = match
        if len(self._known) > MAX_REMEMBERED:
            self._known.pop(next(iter(self._known)))


def _match(regex: str, view: TopicsView, known: _Match | None) -> _Match:
    """Only names that the expression has not seen are matched."""
    matches = matcher(regex, "SubscribedTopicRegex")
    seen: Collection[str] = known.seen if known is not None else ()
    names = {name for name in known.names if name in view.by_name} if known is not None else set()
    names.update(name for name in view.by_name if name not in seen and matches(name))
    return _Match(view.version, view.by_name.keys(), tuple(sorted(names)))
