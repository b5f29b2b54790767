"""Finds prefixed patterns for a name: only possible lengths of prefixes are tried.

A stem is the beginning of a prefix, with 0, 8, 16, 32, 64 or 128 characters. It has the lengths of the prefixes that
begin with it, up to the next stem. A lookup goes from stem to stem until no prefix begins like the name, so the
prefixes of other tenants cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

P = TypeVar("P")

_STEM_LETTERS = (0, 8, 16, 32, 64, 128)
# Up to where a stem has the lengths; names of topics have 249 letters at most, those of other resources no limit.
_REACH = dict(zip(_STEM_LETTERS, (*_STEM_LETTERS[1:], None), strict=True))


class Prefixes(Generic[P]):
    """A value for each prefix."""

    def __init__(self) -> None:
        self._values: dict[str, P] = {}
        # Of all prefixes that begin with a stem, how many have a length.
        self._counts: dict[str, Counter[int]] = {}
        # Those lengths that are below the next stem, the shortest first.
        self._lengths: dict[str, tuple[int, ...]] = {}

    def get(self, prefix: str) -> P | None:
        """The value of this very prefix."""
        return self._values.get(prefix)

    def add(self, prefix: str, value: P) -> None:
        """Keep the value of a prefix that has none yet."""
        self._values[prefix] = value
        for stem in _stems(prefix):
            counts = self._counts.setdefault(stem, Counter())
            counts[len(prefix)] += 1
            if counts[len(prefix)] == 1:
                self._sort(stem, counts)

    def remove(self, prefix: str) -> None:
        """Forget a prefix."""
        del self._values[prefix]
        for stem in _stems(prefix):
            counts = self._counts[stem]
            counts[len(prefix)] -= 1
            if not counts[len(prefix)]:
                del counts[len(prefix)]
                self._sort(stem, counts)

    def _sort(self, stem: str, counts: Counter[int]) -> None:
        if counts:
            reach = _REACH[len(stem)]
            self._lengths[stem] = tuple(sorted(each for each in counts if reach is None or each < reach))
        else:
            del self._counts[stem], self._lengths[stem]

    def of(self, name: str) -> list[P]:
        """The values of the prefixes that `name` begins with, the longest first."""
        values, lengths_of, size = self._values, self._lengths, len(name)
        found: list[P] = []
        for letters in _STEM_LETTERS:
            if letters > size or (stem := name[:letters]) not in lengths_of:
                break
            for length in lengths_of[stem]:
                if length > size:
                    break
                begin = name[:length]
                if begin in values:
                    found.append(values[begin])
        found.reverse()
        return found


def _stems(prefix: str) -> Iterator[str]:
    return (prefix[:letters] for letters in _STEM_LETTERS if letters <= len(prefix))
