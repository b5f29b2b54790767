"""How commands print: tables for people, one JSON value for programs, rich only where it is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """One JSON value on standard output, indented where a person looks on."""
    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        # What JSON may leave as it is (U+009B begins a sequence of its own) a terminal may still obey.
        text = "".join(each if each == "\n" or each.isprintable() else json.dumps(each)[1:-1] for each in text)
    typer.echo(text)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under headings; plain columns where the output is no terminal, so that awk and cut work on it."""
    texts = [["-" if cell is None else harmless(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*headings, box=None, pad_edge=False, header_style="bold")
        for row in texts:
            table.add_row(*(cell.replace("[", r"\[") for cell in row))
        Console().print(table)
        return
    widths = [max(len(line[index]) for line in [list(headings), *texts]) for index in range(len(headings))]
    for line in [list(headings), *texts]:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        typer.echo("  ".join(cells).rstrip())


def harmless(text: str) -> str:
    """Control characters as escapes: names are whatever a client made up, and a terminal obeys what it is sent."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def say(text: str) -> None:
    """One line for a person, on standard output."""
    typer.echo(harmless(text))


def note(text: str) -> None:
    """One remark for a person, on standard error."""
    typer.echo(harmless(text), err=True)
