"""Scenario files: commands and their expected output, run by `test_scenario_files.py` or `python -m tests.scenarios`.

A step is one command line, a line `----`, and the expected lines up to the next blank line. Lines that begin with `#`
are comments. The name of a file up to the first `_` says which words it is written in (`raft_…`, `isr_…`).
`python -m tests.scenarios --rewrite` replaces the expected output by the current one: look at the difference before you
commit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

SEPARATOR = "----"


class Words(Protocol):
    """One world that commands act in; made again for each file."""

    def run(self, command: Command) -> Iterable[str]:
        """Do it and say what happened. Raises ScriptError for a command that makes no sense."""
        ...


class ScriptError(Exception):
    """The file is at fault."""


@dataclass
class Command:
    """`name argument … key=value …`"""

    name: str
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, line: str) -> Command:
        words = line.split()
        plain = [word for word in words[1:] if "=" not in word]
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        return cls(words[0], plain, options)

    def number(self, key: str, default: int | None = None) -> int:
        if key not in self.options and default is None:
            raise ScriptError(f"{self.name} needs {key}=…")
        return int(self.options.get(key, str(default)))

    def numbers(self, key: str) -> list[int]:
        """`1,2,3`; none where the option is missing or `-`."""
        text = self.options.get(key, "-")
        return [] if text == "-" else [int(part) for part in text.split(",")]


@dataclass
class Step:
    """One command with the comments before it; `number` is its line, from 1."""

    lead: list[str]
    line: str
    expected: list[str]
    number: int


def parse(text: str) -> tuple[list[Step], list[str]]:
    """The steps of a file, and the comments behind the last one. Raises ScriptError."""
    steps: list[Step] = []
    lead: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.startswith("#"):
            lead.append(line)
            at += 1
            continue
        if at + 1 >= len(lines) or lines[at + 1] != SEPARATOR:
            raise ScriptError(f"line {at + 1}: {line!r} is not followed by {SEPARATOR}")
        end = at + 2
        while end < len(lines) and lines[end].strip():
            end += 1
        steps.append(Step(lead, line, lines[at + 2 : end], at + 1))
        lead, at = [], end
    return steps, lead


def render(steps: Iterable[Step], trail: Iterable[str]) -> str:
    """The text of a file."""
    lines: list[str] = []
    for step in steps:
        lines += [*step.lead, step.line, SEPARATOR, *step.expected]
    lines += trail
    return "\n".join(lines).rstrip("\n") + "\n"


def play(text: str, make: Callable[[], Words]) -> tuple[str, list[str]]:
    """Run a file from its start; returns it as it should be, and a line for each step that is not so."""
    steps, trail = parse(text)
    words = make()
    wrong = []
    for step in steps:
        try:
            printed = [line.rstrip() for line in words.run(Command.parse(step.line))] or ["ok"]
        except (ScriptError, KeyError, IndexError, ValueError) as error:
            raise ScriptError(f"line {step.number}: {step.line}: {type(error).__name__}: {error}") from error
        if printed != step.expected:
            wrong.append(f"line {step.number}: {step.line}\n  expected:\n    " + "\n    ".join(step.expected))
            wrong[-1] += "\n  printed:\n    " + "\n    ".join(printed)
            step.expected = printed
    return render(steps, trail), wrong
