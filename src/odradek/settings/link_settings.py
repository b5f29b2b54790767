"""Settings of a link beside its addresses: `odradek.link.NAME.` and one of these names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.common.numbers import INT64_MAX, parse_natural

MAX_BYTES: Final = "io.max.bytes.per.second"


def _bytes(text: str) -> str:
    return "" if parse_natural(text, INT64_MAX) is not None else "must be a number of bytes; 0 is no limit"


_PROBLEMS: Mapping[str, Callable[[str], str]] = {MAX_BYTES: _bytes}
LINK_SETTINGS = frozenset(_PROBLEMS)


def setting_problem(name: str, text: str) -> str:
    """What is wrong with the value of a setting of LINK_SETTINGS; empty where nothing is."""
    return _PROBLEMS[name](text)


def max_bytes_per_s(settings: Mapping[str, str]) -> int:
    """How much each broker fetches over a link in a second; 0 where there is no limit."""
    return int(settings.get(MAX_BYTES, "0"))
