"""docs/cli.md: every command is on it, and every example on it is a command line that can be read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from odradek.cli import errors
from odradek.cli.app import COMMANDS, load

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"
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
    words = words_of(example)
    command: Any = load(words[0])
    rest = words[1:]
    if rest and rest[0] in (getattr(command, "commands", None) or ()):
        command, rest = command.commands[rest[0]], rest[1:]
    # Parses, and checks choices and numbers, without running anything; raises what the command line would say.
    with command.make_context(words[0], rest):
        pass


def test_every_exit_code_is_told() -> None:
    codes = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)}
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    assert told == codes


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
