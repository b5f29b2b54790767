"""Java's properties syntax."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.settings.properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1\nb 2\nc\t3", {"a": "1", "b": "2", "c": "3"}),
        ("  a  =  1  ", {"a": "1  "}),
        ("a = = 1", {"a": "= 1"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("# no\n! no\n\n  # no\na=#yes", {"a": "#yes"}),
        ("a=one,\\\n   two,\\\n   three", {"a": "one,two,three"}),
        ("# a comment does not go on \\\nb=2", {"b": "2"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a\\ b\\=c=1", {"a b=c": "1"}),
        ("a=\\t\\n\\q\\:", {"a": "\t\nq:"}),
        ("a=\\u00e4\\u0041", {"a": "äA"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\\\n#still", {"a": "x#still"}),
        ("a=x\\\n\nb=1", {"a": "x", "b": "1"}),
    ],
)
def test_each_form_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "ok=1\n\\u=2"])
def test_a_malformed_escape_names_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d"):
        parse_properties(text)


@given(st.dictionaries(st.text(st.characters(codec="latin-1"), min_size=1), st.text(st.characters(codec="latin-1"))))
def test_written_properties_are_read_back(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values)) == values
