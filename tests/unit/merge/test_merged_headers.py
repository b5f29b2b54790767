"""The origin of a record of a merge topic, and the records that are left out."""

from __future__ import annotations

import pytest

from odradek.merge.merge import ORIGIN_HEADER, Headers, merged_headers

ORIGINS = {"orders": "east", "west.orders": "west"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([], [(ORIGIN_HEADER, b"west")], id="no header"),
        pytest.param([("a", None), ("a", b"")], [("a", None), ("a", b""), (ORIGIN_HEADER, b"west")], id="others"),
        pytest.param([("origin", b"east")], [("origin", b"east"), (ORIGIN_HEADER, b"west")], id="of the application"),
        pytest.param([(ORIGIN_HEADER, b"west")], [(ORIGIN_HEADER, b"west")], id="merged where it comes from"),
        pytest.param([(ORIGIN_HEADER, b"oslo")], [(ORIGIN_HEADER, b"oslo")], id="merged on the way"),
        pytest.param([("a", b"1"), (ORIGIN_HEADER, b"east")], None, id="has come back"),
        pytest.param([(ORIGIN_HEADER, None)], [(ORIGIN_HEADER, None)], id="an empty one"),
        pytest.param([(ORIGIN_HEADER, b"\xff")], [(ORIGIN_HEADER, b"\xff")], id="no text"),
    ],
)
def test_merged_headers_of_a_record_of_west(before: Headers, after: Headers | None) -> None:
    assert merged_headers(before, "west", ORIGINS) == after
