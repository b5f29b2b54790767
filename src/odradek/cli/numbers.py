"""Numbers of options: to Python `inf` and `nan` are some, and neither the least nor the greatest keeps them all out."""

from __future__ import annotations

import typer

GREATEST = 1e15


def finite(value: float) -> float:
    """A callback of options. Raises typer.BadParameter where a value is no number to reckon with."""
    if not abs(value) <= GREATEST:  # nan is neither less nor greater
        raise typer.BadParameter(f"{value:g} is no number up to {GREATEST:g}")
    return value
