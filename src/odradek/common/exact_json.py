"""JSON whose numbers keep all digits: they are Decimals, never floats."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

_plainly = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def decoded(text: str | bytes) -> Any:
    """Parse a text; numbers with a point or an exponent are Decimals.

    Raises:
        ValueError: it is not JSON, or an exponent has more than 18 digits.
        RecursionError: it is nested too deeply.
    """
    try:
        return json.loads(text, parse_float=Decimal)
    except ArithmeticError:
        raise ValueError("a number is too large, or too small") from None


def encoded(value: Any) -> str:
    """A value as compact JSON; the names in its objects are texts.

    Raises:
        TypeError: JSON cannot hold it.
        RecursionError: it is nested too deeply.
    """
    try:
        return _plainly(value)
    except TypeError:  # which the encoder written in C raises at a Decimal
        return _exactly(value)


def _exactly(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_plainly(name)}:{_exactly(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_exactly, value)) + "]"
    return _plainly(value)
