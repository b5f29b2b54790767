"""Collections whose newest changes can be taken back.

A machine replays records before they are committed, so that the next operation sees them; when the write then fails,
the state must return to what it was. All collections of one machine share one `Timeline`, an undo journal: each change
pushes the value that it replaced, `mark(offset)` remembers a place in the journal, `revert_to(offset)` undoes back to
it, `discard_below(offset)` drops what is committed. A write costs one tuple, a read costs nothing extra.

Values must not be changed in place: put a new value under the key instead (frozen dataclasses, tuples). Kafka
reads past states from tiered hash tables (its `timeline` package). Here no read needs them: one that must not see
uncommitted state is an operation without records, whose answer waits for all that it saw (see `runtime`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableSet
from typing import Any, Generic, TypeVar, cast, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

Undo = tuple[Callable[..., None], tuple[Any, ...]]


class Timeline:
    """The undo journal that the collections of one machine share.

    While no mark exists, nothing is journalled: loading a long log costs no memory here.
    """

    __slots__ = ("_journal", "_marks", "_trimmed")

    def __init__(self) -> None:
        self._journal: deque[Undo] = deque()
        self._marks: deque[tuple[int, int]] = deque()  # (log offset, journal length ever at that time)
        self._trimmed = 0  # journal entries dropped from the left so far

    @property
    def recording(self) -> bool:
        """Whether changes are journalled, that is whether there is a mark to return to."""
        return bool(self._marks)

    def mark(self, offset: int) -> None:
        """Remember the state as of `offset` (exclusive: all records below it are replayed). Offsets must not fall."""
        place = self._trimmed + len(self._journal)
        if self._marks:
            last_offset, last_place = self._marks[-1]
            assert offset >= last_offset, f"mark at {offset} after one at {last_offset}"
            if offset == last_offset and place == last_place:
                return
        self._marks.append((offset, place))

    def revert_to(self, offset: int) -> None:
        """Undo every change since the newest mark at `offset`; later marks are dropped, that mark stays."""
        while self._marks and self._marks[-1][0] > offset:
            self._marks.pop()
        assert self._marks and self._marks[-1][0] == offset, f"no mark at {offset}"
        place = self._marks[-1][1] - self._trimmed
        assert 0 <= place <= len(self._journal), f"the journal no longer has what came after {offset}"
        marks, self._marks = self._marks, deque()  # undoing must not journal itself
        while len(self._journal) > place:
            undo, arguments = self._journal.pop()
            undo(*arguments)
        self._marks = marks

    def discard_below(self, offset: int) -> None:
        """Drop marks and undo entries that only a return to before `offset` would need."""
        while len(self._marks) > 1 and self._marks[1][0] <= offset:
            self._marks.popleft()
        if self._marks and self._marks[0][0] <= offset:
            place = self._marks[0][1]
            while self._trimmed < place:
                self._journal.popleft()
                self._trimmed += 1

    def discard_all(self) -> None:
        """Keep the present state for good and stop journalling."""
        self._marks.clear()
        self._trimmed = 0
        self._journal.clear()

    def push(self, undo: Callable[..., None], *arguments: Any) -> None:
        """Journal how to take one change back; collections call this before they change."""
        if self._marks:
            self._journal.append((undo, arguments))

    def __len__(self) -> int:
        return len(self._journal)


class TimelineDict(dict[K, V]):
    """A dict that its timeline can take back. Reads are those of `dict`; order after a revert is not kept."""

    __slots__ = ("_timeline",)

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def __setitem__(self, key: K, value: V) -> None:
        if self._timeline.recording:
            if key in self:
                self._timeline.push(super().__setitem__, key, self[key])
            else:
                self._timeline.push(super().__delitem__, key)
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        if self._timeline.recording:
            self._timeline.push(super().__setitem__, key, self[key])
        super().__delitem__(key)

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V, /) -> V: ...
    @overload
    def pop(self, key: K, default: D, /) -> V | D: ...
    def pop(self, key: K, *default: Any) -> Any:
        if key not in self:
            if default:
                return default[0]
            raise KeyError(key)
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[K, V]:
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def setdefault(self, key: K, default: V, /) -> V:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **named: V) -> None:
        for key, value in dict(*others, **named).items():
            self[cast(K, key)] = value

    def __ior__(self, other: Any) -> TimelineDict[K, V]:  # type: ignore[override,misc]  # dict's is overloaded
        self.update(other)
        return self


class TimelineSet(MutableSet[V]):
    """A set that its timeline can take back; iterates in order of insertion, so that decisions are repeatable."""

    __slots__ = ("_members",)

    def __init__(self, timeline: Timeline) -> None:
        self._members: TimelineDict[V, None] = TimelineDict(timeline)

    def __contains__(self, value: object) -> bool:
        return value in self._members

    def __iter__(self) -> Iterator[V]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def add(self, value: V) -> None:
        if value not in self._members:
            self._members[value] = None

    def discard(self, value: V) -> None:
        self._members.pop(value, None)

    def update(self, values: Iterable[V]) -> None:
        """Add all of `values`."""
        for value in values:
            self.add(value)

    def __repr__(self) -> str:
        return f"TimelineSet({list(self._members)!r})"


class TimelineValue(Generic[V]):
    """One value that its timeline can take back: a counter, a current epoch, a whole immutable image."""

    __slots__ = ("_timeline", "_value")

    def __init__(self, timeline: Timeline, value: V) -> None:
        self._timeline = timeline
        self._value = value

    @property
    def value(self) -> V:
        return self._value

    @value.setter
    def value(self, value: V) -> None:
        if self._timeline.recording:
            self._timeline.push(self._put, self._value)
        self._value = value

    def _put(self, value: V) -> None:
        self._value = value
