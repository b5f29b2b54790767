"""Whole numbers as people write them."""

from __future__ import annotations


def parse_natural(text: str, limit: int) -> int | None:
    """A number from 0 to `limit` (inclusive) in ASCII digits; None for any other text.

    `str.isdigit` says yes to `²`, and `int` raises for that and for some thousand digits: neither alone is a check.
    """
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(limit)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= limit else None
