"""Finds the place of a planted bug in the source of a function, though the product was formatted or renamed since.

A place is a run of tokens, so line breaks, comments and trailing commas between them do not matter. Where no run is
equal, one is taken that differs in the spelling of a few names alone, each name in the same way throughout: as after a
rename of a variable, an attribute or a function. The names of the wrong text are then renamed alike. A place that is
found twice, or in which too many names differ, is no place: a bug elsewhere would prove nothing.
"""

from __future__ import annotations

import importlib
import io
import keyword
import pkgutil
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

# The number of different names that a place must have for each name that may be renamed.
NAMES_FOR_ONE_RENAMED = 3
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        start, end: positions in the text, in characters, end excluded.
        is_name: whether a rename could spell it otherwise.
        comma_end: the end of a comma between it and a closing bracket; -1 where there is none.
    """

    text: str
    start: int
    end: int
    is_name: bool
    comma_end: int = -1


@dataclass(frozen=True, slots=True)
class Place:
    """A run of the source, in characters, end excluded, and which names of the bug's text are spelt otherwise there."""

    start: int
    end: int
    renamed: Mapping[str, str] = field(default_factory=dict)

    def spelt_here(self, text: str) -> str:
        """The bug's text with the names that the source has now."""
        for token in reversed(tokens_of(text)):
            if token.is_name and token.text in self.renamed:
                text = text[: token.start] + self.renamed[token.text] + text[token.end :]
        return text


def tokens_of(text: str) -> list[Token]:
    """The tokens of a piece of Python, which need not be whole: without layout, and without commas before a bracket."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Token] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _LAYOUT or not token.string:
                continue
            if token.string in ")]}" and len(found) > 1 and found[-1].text == ",":
                comma = found.pop()
                found[-1] = replace(found[-1], comma_end=comma.end)
            start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            found.append(Token(token.string, start, end, is_name))
    except (tokenize.TokenError, IndentationError):
        pass  # an open bracket at the end of a piece: its tokens have come
    return found


def place_in(source: str, right: str) -> Place:
    """The place of a bug's text in a source.

    Raises:
        LookupError: the text is nowhere, or in several places.
    """
    tokens, wanted = tokens_of(source), tokens_of(right)
    found = [place for place, _ in _places(tokens, wanted)]
    if not found and wanted[-1].text == ",":
        ends = _places(tokens, wanted[:-1])
        found = [replace(place, end=last.comma_end) for place, last in ends if last.comma_end >= 0]
    if len(found) != 1:
        raise LookupError(f"{len(found)} places of {right!r}")
    return found[0]


def _places(tokens: list[Token], wanted: list[Token]) -> list[tuple[Place, Token]]:
    """Each place with its last token: those that are spelt as `wanted`, or else those with other names."""
    exact: list[tuple[Place, Token]] = []
    alike: list[tuple[Place, Token]] = []
    for at in range(len(tokens) - len(wanted) + 1):
        run = tokens[at : at + len(wanted)]
        renamed = _renamed(wanted, run)
        if renamed is not None:
            (alike if renamed else exact).append((Place(run[0].start, run[-1].end, renamed), run[-1]))
    return exact or alike


def _renamed(wanted: list[Token], run: list[Token]) -> dict[str, str] | None:
    """The names that differ; None if anything else differs, or a name in two ways, or too many of them."""
    spelt: dict[str, str] = {}
    for mine, theirs in zip(wanted, run, strict=True):
        if mine.is_name != theirs.is_name or not (mine.is_name or mine.text == theirs.text):
            return None
        if mine.is_name and spelt.setdefault(mine.text, theirs.text) != theirs.text:
            return None
    if len(set(spelt.values())) != len(spelt):
        return None
    renamed = {mine: theirs for mine, theirs in spelt.items() if mine != theirs}
    return None if len(renamed) * NAMES_FOR_ONE_RENAMED > len(spelt) else renamed


def owner_of(where: str) -> tuple[Any, str, bool]:
    """The module or class that holds `module:function` or `module:Class.method`, the last name, whether it is a class.

    A function that moved to another module is found there, if only one module of the product has it.

    Raises:
        LookupError: no module has it, or several have.
    """
    module_name, _, path = where.partition(":")
    try:
        candidates = [importlib.import_module(f"odradek.{module_name}")]
    except ModuleNotFoundError:
        candidates = []
    found = [owner for module in candidates if (owner := _holder(module, path)) is not None]
    if not found:
        found = [owner for module in _modules() if (owner := _holder(module, path)) is not None]
    if len(found) != 1:
        raise LookupError(f"{where} is in {len(found)} modules")
    *owners, name = path.split(".")
    return found[0], name, bool(owners)


def _holder(module: ModuleType, path: str) -> Any:
    """The owner of the function in the module that defines it; None where that is not this one."""
    *owners, name = path.split(".")
    owner: Any = module
    for each in owners:
        owner = vars(owner).get(each)
        if owner is None:
            return None
    value = vars(owner).get(name)
    home = getattr(owner if owners else value, "__module__", module.__name__)
    return owner if value is not None and home == module.__name__ else None


def _modules() -> Iterator[ModuleType]:
    package = importlib.import_module("odradek")
    for each in pkgutil.walk_packages(package.__path__, "odradek."):
        # The pages of the console bring a framework, which is an extra; no bug is planted there.
        if not each.name.endswith("__main__") and not each.name.startswith("odradek.console.pages."):
            yield importlib.import_module(each.name)
