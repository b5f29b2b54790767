"""Whole numbers as people write them."""

from __future__ import annotations

# The largest of the protocol's signed types.
INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_PORT = 65_535


def parse_natural(text: str, limit: int) -> int | None:
    """A number from 0 to `limit` (inclusive) in ASCII digits; None for any other text.

    `str.isdigit` accepts `²`, and `int` raises for that and for some thousand digits: neither suffices.
    """
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(limit)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= limit else None
