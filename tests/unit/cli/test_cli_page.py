"""docs/cli.md: every command is on it. There and on all other pages, examples are command lines that can be read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cli import errors
from odradek.cli.app import COMMANDS, load

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "cli.md"
TEXT = PAGE.read_text()
EXAMPLES = [
    line.split("  #")[0].strip()
    for block in re.findall(r"^```\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if "COMMAND" not in line
]


def words_of(example: str) -> list[str]:
    """The words behind `odradek`, without what is piped in or out."""
    command = re.sub(r'"\$\(.*?\)"', "ID", example)
    words = shlex.split(command)
    start = words.index("odradek") + 1
    return words[start : words.index(">")] if ">" in words else words[start:]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_and_every_subcommand_an_example(name: str) -> None:
    assert re.search(rf"^## {name}$", TEXT, re.MULTILINE)
    commands = [words_of(example) for example in EXAMPLES]
    assert any(words[0] == name for words in commands)
    for sub in getattr(load(name), "commands", None) or ():
        assert any(words[:2] == [name, sub] for words in commands), f"no example of {name} {sub}"


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_can_be_read(example: str) -> None:
    command, rest = command_of(example)
    parse(command, rest)


def command_of(example: str) -> tuple[Any, list[str]]:
    """The command, or that of its subcommands which is named, and the words behind that."""
    name, *rest = words_of(example)
    command: Any = load(name)
    if rest and rest[0] in (getattr(command, "commands", None) or ()):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def parse(command: Any, words: list[str]) -> None:
    """Parse, and check choices and numbers, without running anything; raises what the command line would say."""
    with command.make_context(command.name, words):
        pass


def commands_on(page: Path) -> Iterator[str]:
    """The command lines of a page, in its blocks and in its sentences."""
    text = page.read_text()
    block = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for found in block.findall(text) for line in found.splitlines()]
    yield from (line for line in lines if re.search(r"(^|\| )odradek [a-z]", line))
    yield from re.findall(r"`(odradek [a-z][^`…]*)`", block.sub("", text))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_every_command_line_on_a_page_can_be_read(page: Path) -> None:
    """Of an example that is only a command's name, the test checks the name."""
    for example in commands_on(page):
        command, rest = command_of(example)
        if rest:
            parse(command, rest)


def test_every_exit_code_is_reported() -> None:
    codes = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}
    reported = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    assert reported == codes


def test_every_option_on_the_page_exists() -> None:
    options = {
        option
        for name in COMMANDS
        for command in (load(name), *(getattr(load(name), "commands", None) or {}).values())
        for parameter in command.params
        for option in parameter.opts
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT))
    of_others = {"--create", "--list", "--help", "--install-completion"}
    assert named - options <= of_others, named - options - of_others
