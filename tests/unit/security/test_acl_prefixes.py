"""The index of prefixes finds what a search through every prefix finds, and tries few lengths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.security.acl.prefixes import Prefixes

# Around each length at which the look-up goes on to another table.
LENGTHS = st.sampled_from([0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 63, 64, 65, 127, 128, 129, 249, 300])
# Names that differ early, late or not at all.
NAMES = st.builds(
    lambda length, letter, at: ("a" * at + letter + "a" * 300)[:length], LENGTHS, st.sampled_from("ab"), LENGTHS
)


@given(steps=st.lists(NAMES, max_size=30), names=st.lists(NAMES, min_size=1, max_size=8))
def test_prefixes_are_those_of_a_search_through_all(steps: list[str], names: list[str]) -> None:
    prefixes, model = Prefixes[str](), set[str]()
    for prefix in steps:  # one that comes again goes
        if prefix in model:
            prefixes.remove(prefix)
        else:
            prefixes.add(prefix, prefix)
        model ^= {prefix}
        for name in names:
            assert prefixes.get(name) == (name if name in model else None)
            assert prefixes.of(name) == sorted(filter(name.startswith, model), key=len, reverse=True)


class CountedName(str):
    """Counts how often it is sliced."""

    taken = 0

    def __getitem__(self, key: object) -> str:
        self.taken += 1
        return super().__getitem__(key)  # type: ignore[index]  # str or slice, as of any str


def test_lengths_of_other_tenants_prefixes_are_not_tried() -> None:
    prefixes = Prefixes[int]()
    for length in range(9, 200):
        prefixes.add(f"tenant-{length % 7}-".ljust(length, "x"), length)
    prefixes.add("tenant-9-orders", 0)
    name = CountedName("tenant-9-orders-of-today-and-tomorrow")
    assert prefixes.of(name) == [0]
    # A stem of each of 0, 8 and 16 letters, and the one length below `tenant-9`.
    assert name.taken == 4


def test_removed_prefixes_are_freed() -> None:
    prefixes = Prefixes[int]()
    for number in range(100):
        prefixes.add(f"tenant-{number}-" * 4, number)
    for number in range(100):
        prefixes.remove(f"tenant-{number}-" * 4)
    assert not prefixes._values and not prefixes._counts and not prefixes._lengths
