"""The line about a partition whose log was truncated for a failback."""

from __future__ import annotations

import pytest

from odradek.cli.link_state import cut_line


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/logs/t-0.failback-7.log", "its 70 bytes from there on are in /logs/t-0.failback-7.log"),
        (None, "are not known"),
    ],
)
def test_the_line_of_a_cut_with_and_without_a_file(file: str | None, said: str) -> None:
    row = {"topic": "t", "partition": 0, "cut": {"offset": 5, "broker": 1, "file": file, "bytes": 70}}
    assert cut_line(row).startswith("t-0 was cut to 5 on broker 1: ")
    assert said in cut_line(row)
