"""The undo journal restores exactly the state at a mark."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.statemachine.timeline import Timeline, TimelineDict, TimelineSet, TimelineValue


def test_a_timeline_records_nothing_before_its_first_mark() -> None:
    timeline = Timeline()
    values: TimelineDict[str, int] = TimelineDict(timeline)
    values["a"] = 1
    assert len(timeline) == 0 and values == {"a": 1}


def test_revert_restores_new_changed_and_deleted_keys() -> None:
    timeline = Timeline()
    values: TimelineDict[str, int] = TimelineDict(timeline)
    values["kept"], values["changed"], values["deleted"] = 1, 2, 3
    timeline.mark(10)
    values["changed"] = 20
    values["new"] = 4
    del values["deleted"]
    values["changed"] = 30
    timeline.revert_to(10)
    assert values == {"kept": 1, "changed": 2, "deleted": 3}


def test_revert_goes_to_the_middle_of_several_marks_and_recording_goes_on() -> None:
    timeline = Timeline()
    value: TimelineValue[int] = TimelineValue(timeline, 0)
    for offset in (1, 2, 3):
        timeline.mark(offset)
        value.value = offset * 10
    timeline.revert_to(2)
    assert value.value == 10
    value.value = 99
    timeline.revert_to(2)
    assert value.value == 10
    timeline.revert_to(1)
    assert value.value == 0


def test_discarding_committed_changes_keeps_later_marks() -> None:
    timeline = Timeline()
    members: TimelineSet[str] = TimelineSet(timeline)
    timeline.mark(1)
    members.add("a")
    timeline.mark(2)
    members.add("b")
    timeline.mark(3)
    members.discard("a")
    timeline.discard_below(2)
    assert len(timeline) == 2
    timeline.revert_to(2)
    assert list(members) == ["a"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers()),
        st.tuples(st.just("pop"), st.integers(0, 5), st.none()),
        st.tuples(st.just("clear"), st.none(), st.none()),
        st.tuples(st.just("mark"), st.none(), st.none()),
        st.tuples(st.just("revert"), st.integers(0, 20), st.none()),
        st.tuples(st.just("forget"), st.integers(0, 20), st.none()),
    ),
    max_size=60,
)


@given(STEPS)
def test_against_full_copies(steps: list[tuple[str, Any, Any]]) -> None:
    timeline = Timeline()
    values: TimelineDict[int, int] = TimelineDict(timeline)
    copies: list[tuple[int, dict[int, int]]] = []
    offset = 0
    for verb, key, value in steps:
        if verb == "set":
            values[key] = value
        elif verb == "pop":
            values.pop(key, None)
        elif verb == "clear":
            values.clear()
        elif verb == "mark":
            offset += 1
            timeline.mark(offset)
            copies.append((offset, copy.copy(dict(values))))
        elif verb == "revert" and copies:
            place = key % len(copies)
            offset, expected = copies[place]
            del copies[place + 1 :]
            timeline.revert_to(offset)
            assert dict(values) == expected
        elif verb == "forget" and copies:
            place = key % len(copies)
            timeline.discard_below(copies[place][0])
            del copies[:place]
