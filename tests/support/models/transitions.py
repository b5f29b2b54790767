"""Walks over every pair of states of a transition table, and reads the table in a module's head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

import pytest

StateT = TypeVar("StateT", bound=Enum)


def check_every_pair(
    table: Mapping[StateT, frozenset[StateT]],
    move: Callable[[StateT, StateT], None],
    *,
    name: Callable[[StateT], str] = lambda state: str(state.value),
) -> None:
    """`move` puts something into the first state and takes it to the second: as the table says, or an AssertionError
    that names both."""
    assert set(table) == set(type(next(iter(table))))
    for before in table:
        for after in table:
            if after in table[before]:
                move(before, after)
            else:
                with pytest.raises(AssertionError, match=f"{name(before)} -> {name(after)}"):
                    move(before, after)


def written_transitions(head: str, by_name: Mapping[str, StateT]) -> dict[StateT, set[StateT]]:
    """The rows `| from | to | when |` of a module's head, read. A cell lists names; `Complete*` are all that begin
    so, `any but X, Y` all others; `(none)` is no state."""
    found: dict[StateT, set[StateT]] = {state: set() for state in by_name.values()}
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in head.splitlines() if line.startswith("|")]
    for sources, targets in rows[2:]:
        for source in _named(sources, by_name):
            found[source] |= _named(targets, by_name)
    return found


def _named(cell: str, by_name: Mapping[str, StateT]) -> set[StateT]:
    if cell.startswith("any"):
        return set(by_name.values()) - _named(cell.removeprefix("any").removeprefix(" but"), by_name)
    chosen: set[StateT] = set()
    for word in filter(None, (word.strip() for word in cell.split(","))):
        if word.endswith("*"):
            chosen |= {state for name, state in by_name.items() if name.startswith(word[:-1])}
        elif word != "(none)":
            chosen.add(by_name[word])
    return chosen
