"""Finite numbers as option values: Python also parses `inf` and `nan`, which limits do not exclude."""

from __future__ import annotations

import typer

GREATEST = 1e15


def finite(value: float) -> float:
    """An option callback. Raises typer.BadParameter for a value that is not finite."""
    if not abs(value) <= GREATEST:  # nan is neither less nor greater
        raise typer.BadParameter(f"{value:g} is not a number up to {GREATEST:g}")
    return value
