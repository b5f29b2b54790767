"""Output of commands: tables, or one JSON value; rich is imported only if needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.errors import USAGE, CliError

if TYPE_CHECKING:
    from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def check_writable(*files: Path | None) -> None:
    """Raises CliError if one of these files cannot be written, before a long run."""
    for file in files:
        try:
            if file is None or (file.exists() and not file.is_file() and not file.is_dir()):
                continue  # a pipe, or a terminal
            is_new = not file.exists()
            with file.open("a"):
                pass
            if is_new:
                file.unlink()
        except OSError as error:
            raise CliError(f"{file} cannot be written: {error.strerror}", code=USAGE) from None


def print_json(value: Any) -> None:
    """Print one JSON value, indented on a terminal."""
    typer.echo(json_text(value, indent=2 if sys.stdout.isatty() else None))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that is safe for a terminal."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        # A terminal may execute characters that JSON does not escape (U+009B begins a control sequence).
        text = "".join(each if each == "\n" or each.isprintable() else json.dumps(each)[1:-1] for each in text)
    return text


def rich_table(headings: Sequence[str]) -> Table:
    """A table for a terminal; wide cells are wrapped, not truncated."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under headings; plain columns if the output is no terminal, for awk and cut."""
    texts = [["-" if cell is None else harmless(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console

        table = rich_table(headings)
        for row in texts:
            table.add_row(*(cell.replace("[", r"\[") for cell in row))
        Console().print(table)
    else:
        _print_columns([list(headings), *texts])


def _print_columns(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        typer.echo("  ".join(cells).rstrip())


def harmless(text: str) -> str:
    """Escape control characters: names come from clients, and a terminal interprets such characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def ranges_text(numbers: Sequence[int]) -> str:
    """Numbers in order, each once: `0-10, 12`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def say(text: str) -> None:
    """Print a line on standard output."""
    typer.echo(harmless(text))


def say_on_stderr(text: str) -> None:
    """Print a line on standard error."""
    typer.echo(harmless(text), err=True)
