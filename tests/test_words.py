"""Words that the glossary replaces do not come back: each room has at most as many lines with them as are listed here.

A room that has none is not listed. A change that removes some lowers the number; no change raises one. Names of tests
are short, and say what happens in Kafka's terms: none begins with a pronoun in place of a subject. Nor does a docstring
begin with a clause: it says what a value is, or what a function does.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = re.compile(
    r"\b(told|tells|whoever|nobody|anew|reigns?|obeys?|meddl\w*|strangers?|hurry|lies (?:on|in|there)|left away"
    r"|leave \w+ away|not to be had|cannot be had|stands still|put aside|put right|shut out|put off|without a word"
    r"|went another way|(?:came|come|comes) to nothing|of another time|not heard of|stop beating)\b"
    # Names of functions and attributes.
    r"|\b_(?:hear|learn|obey|stand|wish|heard|told|untold|promised|quiet)(?:_\w+)?\b",
    re.IGNORECASE,
)
# Words in names of functions and classes of tests; in prose, "door" is a thing and "who" a question.
NAMES = re.compile(
    r"^\s*(?:async )?(?:def|class) (?:test_who_|\w*(?:[tT]old|[tT]ells|[wW]hoever|[nN]obod|[aA]new|(?<![fF]o)[rR]eign"
    r"|[oO]bey|[mM]eddl|[sS]tranger|[hH]urr|[dD]oor|shut_out|put_right|stands_still))\w*",
    re.MULTILINE,
)
LONGEST_NAME = 70
# Names of functions and methods that do not say what happens: something is applied, appended, removed or recorded.
VAGUE = re.compile(
    r"^\s*(?:async )?def (_?(?:take|forget|note|keep|tell|ask|give|learn|look|go)(?:_\w+)?)\(", re.MULTILINE
)
# Terms of Kafka, Python and Arrow, and a name in an example.
STANDARD = {
    "_keep_alive",
    "_look_up",
    "_take",
    "keep_prepared",
    "take_offline",
    "take_snapshot",
    "tell_of_long_visits",
}
# Docstrings that begin with a clause: "What is read of a log" instead of "The records of a log".
CLAUSES = re.compile(r'^\s*[rR]?"""\s*((?:What|Who)\b.*)', re.MULTILINE)
# Lines, by room.
LEFT: dict[str, int] = {}


# Names, by room.
NAMES_LEFT: dict[str, int] = {}
VAGUE_LEFT: dict[str, int] = {}
CLAUSES_LEFT: dict[str, int] = {"examples": 47}


def room_of(path: Path) -> str:
    """`src/odradek/log` or `tests/sim` for a module of that room, else the first folder, or the name of a file."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "tests":
        return "/".join(parts[: 3 if parts[1] in ("unit", "component") else 2])
    if parts[0] == "src":
        return "/".join(parts[: 3 if parts[1] == "odradek" and len(parts) > 3 else 2])
    return parts[0]


def pages_and_modules() -> list[Path]:
    """The files that users and contributors read: the sources, the pages, the examples and the tools."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for folder in ("src", "docs", "examples", "bench", "tools", "tests"):
        found += [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]
    found += [
        *(ROOT / "tests" / "scenarios").rglob("*.txt"),
        *(ROOT / "tests" / "integration" / "data").glob("*_as_kafka.txt"),
    ]
    return [path for path in found if path not in (Path(__file__).resolve(), ROOT / "docs" / "glossary.md")]


def test_replaced_words_do_not_come_back() -> None:
    lines: Counter[str] = Counter()
    for path in pages_and_modules():
        lines[room_of(path)] += sum(bool(WORDS.search(line)) for line in path.read_text().splitlines())
    more = {
        room: f"{count} lines, at most {LEFT.get(room, 0)}"
        for room, count in lines.items()
        if count > LEFT.get(room, 0)
    }
    assert not more, f"use the terms of docs/glossary.md: {more}"


def test_names_of_tests_are_short_and_plain() -> None:
    found: Counter[str] = Counter()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        long = [name for name in re.findall(r"def (test_\w+)", text) if len(name) > LONGEST_NAME]
        found[room_of(path)] += len(long) + len(NAMES.findall(text))
    more = {
        room: f"{count} names, at most {NAMES_LEFT.get(room, 0)}"
        for room, count in found.items()
        if count > NAMES_LEFT.get(room, 0)
    }
    assert not more, f"at most {LONGEST_NAME} characters, and the terms of docs/glossary.md: {more}"


def test_names_of_functions_say_what_they_do() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        names = [name for name in VAGUE.findall(path.read_text()) if name not in STANDARD]
        found.setdefault(room_of(path), []).extend(f"{path.name}: {name}" for name in names)
    more = {room: names for room, names in found.items() if len(names) > VAGUE_LEFT.get(room, 0)}
    assert not more, f"apply, append, acquire, remove, invalidate, release, record or update: {more}"


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found: dict[str, list[str]] = {}
    for folder in ("src", "tests", "tools", "bench", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            texts = CLAUSES.findall(path.read_text())
            found.setdefault(room_of(path), []).extend(f"{path.name}: {text}" for text in texts)
    more = {room: texts for room, texts in found.items() if len(texts) > CLAUSES_LEFT.get(room, 0)}
    assert not more, f"name the value, or what the function does or checks: {more}"
