"""The commands in the running text of a page of docs, and the tests that run them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Options alone are commands too: they belong to the one that their sentence is about. kubectl is none of the programs:
# no test has a Kubernetes.
COMMAND = re.compile(r"(?:odradek|kafka-[a-z-]+\.sh|make|systemctl)(?: .*)?|--[a-z].*")
# The class by which tests start a tool of Kafka.
TOOLS = {"kafka-features.sh": "FeatureCommand", "kafka-metadata-quorum.sh": "MetadataQuorumCommand"}
# Names that an example of a page has; a test may use others.
NAMES = {"a:9092", "orders-0", "billing"}


def inline_commands(text: str) -> list[str]:
    """The commands in code of running text and tables, without fenced blocks."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text))
    return sorted({code for code in found if COMMAND.fullmatch(code)})


def words_of(command: str) -> list[str]:
    return [word for word in command.split() if word not in NAMES]


def covers(whole: str, command: str) -> bool:
    """Whether all words of a command follow one another in `whole`."""
    words, part = words_of(whole), words_of(command)
    return any(words[at : at + len(part)] == part for at in range(len(words)))


def problems(commands: Sequence[str], run: Sequence[str], elsewhere: Mapping[str, str]) -> Iterator[str]:
    """The commands that no test runs, and the rows of `elsewhere` that are wrong.

    Args:
        commands: the inline commands of a page.
        run: the lines that the test of the page runs.
        elsewhere: a command -> the test that runs it, as `FILE::NAME`.
    """
    others = [command for command in commands if not any(covers(line, command) for line in run)]
    for command in others:
        if not any(covers(whole, command) for whole in elsewhere):
            yield f"no test runs `{command}`"
    for whole, test in elsewhere.items():
        if not any(covers(whole, command) for command in others):
            yield f"`{whole}` is on no page, or a block has it"
        yield from (f"{test}: {why}" for why in _missing(whole, test))


def _missing(whole: str, test: str) -> Iterator[str]:
    """Reasons why a test cannot run a command."""
    file, _, name = test.partition("::")
    path = ROOT / file
    text = path.read_text() if path.is_file() else ""
    found = [node for node in ast.walk(ast.parse(text)) if _is_function(node, name)]
    if not found:
        yield "there is no such test"
        return
    program, *words = words_of(whole)
    if TOOLS.get(program, program) not in text:
        yield f"does not run {program}"
    there = set(_words(found[0]))
    for word in words:
        if word not in there:
            yield f"does not have `{word}` of `{whole}`"


def _is_function(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name


def _words(function: ast.AST) -> Iterator[str]:
    """The names and the words in strings of a function, without its docstring."""
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from node.value.split()
