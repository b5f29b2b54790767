"""SASLprep (RFC 4013): normalizes names and passwords that can be typed in several forms.

Kafka's clients hash passwords as typed, other clients normalize them first. `is_prepared` is true for passwords that
are equal in both cases.
"""

from __future__ import annotations

import stringprep
import unicodedata

_FORBIDDEN = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str:
    """The prepared form.

    Raises:
        ValueError: the text has characters that none may have, or mixes directions of writing.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(is_forbidden(char) for char in prepared for is_forbidden in _FORBIDDEN):
        raise ValueError("it has characters that SASLprep (RFC 4013) forbids")
    if any(stringprep.in_table_d1(char) for char in prepared):
        ends = prepared[0], prepared[-1]
        if not all(map(stringprep.in_table_d1, ends)) or any(map(stringprep.in_table_d2, prepared)):
            raise ValueError("it mixes letters that are written to the left and to the right (RFC 4013)")
    return prepared


def is_prepared(text: str) -> bool:
    """Whether clients that prepare a text, and clients that do not, send the same."""
    try:
        return saslprep(text) == text
    except ValueError:
        return False
