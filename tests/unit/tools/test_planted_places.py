"""The place of a planted bug is found after formatting, renames and moves, and refused where it is in doubt."""

from __future__ import annotations

import pytest

from odradek.log.producer_state import ProducerState
from tests.support.planted.places import owner_of, place_in

SOURCE = '''
def append(self, header, verification):
    """Check, then write."""
    known = self.producers.check(
        header,  # of the batch
        verification,
    )
    return Entry(offset=known.offset, end=known.end)
'''


def planted(right: str, wrong: str, source: str = SOURCE) -> str:
    place = place_in(source, right)
    return source[: place.start] + place.spelt_here(wrong) + source[place.end :]


def test_line_breaks_comments_and_trailing_commas_do_not_matter() -> None:
    assert "    known = None\n" in planted("known = self.producers.check(header, verification)", "known = None")


def test_a_last_comma_is_part_of_the_place() -> None:
    source = "def one():\n    return Entry(\n        offset=start,\n    )\n"
    assert "offset=start + 1,\n" in planted("offset=start,", "offset=start + 1,", source)


def test_the_wrong_text_has_the_names_of_the_source() -> None:
    source = SOURCE.replace("producers", "producer_states")
    changed = planted("known = self.producers.check(header, verification)", "known = self.producers", source)
    assert "    known = self.producer_states\n" in changed


@pytest.mark.parametrize(
    "right",
    [
        "unknown = self.other.find(header, verification)",  # too many names differ
        "known = self.producers.check(header, header)",  # one name for two
        "known = self.producers.check(header, 1)",
        "known",  # in three places
    ],
)
def test_a_doubtful_place_is_refused(right: str) -> None:
    with pytest.raises(LookupError, match="places of"):
        place_in(SOURCE, right)


def test_a_function_moved_to_another_module_is_found() -> None:
    assert owner_of("log.log:ProducerState.check") == (ProducerState, "check", True)
    with pytest.raises(LookupError, match="in 0 modules"):
        owner_of("log.log:NoSuchClass.check")
