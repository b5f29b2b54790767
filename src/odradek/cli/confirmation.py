"""Confirmation of changes that cannot be undone."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from odradek.cli.errors import USAGE, CliError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation on a terminal; without one, --yes is required. Raises CliError, typer.Abort."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError(f"{question} Pass --yes to do so without being asked", code=USAGE)
    typer.confirm(question, abort=True)
