"""The consumer protocol that is embedded in the classic one: the bytes that are read as such, and those written."""

from __future__ import annotations

import pytest

from odradek.common.errors import ProtocolError
from odradek.coordinator.group.classic.subscription import read_assignment, read_subscription, write_assignment
from tests.unit.coordinator.conftest import subscription

BODY = subscription("t", version=0)[2:]


@pytest.mark.parametrize(
    ("data", "topics"),
    [
        (b"\x00\x00" + BODY, ["t"]),
        (subscription("t", "u", version=1), ["t", "u"]),
        (subscription("t", version=3), ["t"]),
        (b"\x7f\xff" + subscription("t", version=3)[2:], ["t"]),
        (b"", None),
        (b"\x00", None),
        (b"\x80\x00" + BODY, None),
        (b"\xff\xff" + subscription("t", version=3)[2:], None),
        (b"\x00\x00\x00", None),
    ],
    ids=["0", "1", "3", "a later one is read as the last", "nothing", "half", "negative", "-1", "cut"],
)
def test_a_subscription_has_a_version_that_is_not_negative(data: bytes, topics: list[str] | None) -> None:
    if topics is None:
        with pytest.raises(ProtocolError):
            read_subscription(data)
    else:
        assert read_subscription(data).topics == topics


@pytest.mark.parametrize(
    ("like", "version"),
    [(subscription("t", version=2), 2), (b"\x7f\xff", 3), (b"\x80\x01", 0), (b"", 0)],
    ids=["a version", "a later one", "a negative one", "none"],
)
def test_an_assignment_is_written_in_the_version_of_the_subscription(like: bytes, version: int) -> None:
    written = write_assignment({"t": [0, 2]}, like)
    assert int.from_bytes(written[:2], "big") == version
    assert sorted(read_assignment(written)) == [("t", 0), ("t", 2)]
