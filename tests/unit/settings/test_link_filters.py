"""Lists of what crosses a link: what they have, and what is refused."""

from __future__ import annotations

import json

import pytest

from odradek.settings.link_filters import follows_group, parse_group_filters


def filters(*entries: dict[str, str]) -> str:
    return json.dumps({"groupFilters": entries})


def test_a_group_follows_that_is_included_and_not_excluded() -> None:
    parsed = parse_group_filters(
        filters(
            {"name": "bill", "patternType": "PREFIXED"},
            {"name": "billing", "filterType": "EXCLUDE"},
            {"name": "orders"},
        )
    )
    followed = ["bill", "billing", "billing-2", "orders", "orders-2", ""]
    assert [name for name in followed if follows_group(parsed, name)] == ["bill", "billing-2", "orders"]
    assert follows_group(parse_group_filters(filters({"name": "*"})), "any")
    assert not follows_group(parse_group_filters(""), "any")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "must be JSON"),
        ("[]", "must be"),
        ('{"groupFilters": 1}', "must be"),
        ('{"groupFilters": [1]}', "must be"),
        (filters({"name": ""}), "must have a name"),
        (filters({"name": "a", "patternType": "ANY"}), "patternType is"),
        (filters({"name": "a", "filterType": "ALL"}), "filterType is"),
        (filters({"name": "a", "pattern": "LITERAL"}), "pattern is none of"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_group_filters(text)
