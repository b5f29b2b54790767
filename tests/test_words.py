"""Words that the glossary replaces do not come back.

Names of tests are short, and say what happens in Kafka's terms: none begins with a pronoun in place of a subject. Nor
does a docstring begin with a clause: it says what a value is, or what a function does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = re.compile(
    r"(\b(?:told|tells|whoever|nobody|anew|reigns?|obeys?|meddl\w*|strangers?|hurry|lies (?:on|in|there)|left away"
    r"|leave \w+ away|not to be had|cannot be had|stands still|put aside|put right|shut out|put off|without a word"
    r"|mend(?:s|ed|ing)?|time-outs?|back-offs?|went another way"
    r"|(?:came|come|comes) to nothing|of another time|not heard of|stop beating)\b"
    # Names of functions and attributes.
    r"|\b_(?:hear|learn|obey|stand|wish|heard|told|untold|promised|quiet)(?:_\w+)?\b)",
    re.IGNORECASE,
)
# Words in names of functions and classes of tests; in prose, "door" is a thing and "who" a question.
NAMES = re.compile(
    r"^\s*(?:async )?(?:def|class) ((?:test_(?:who|what|whatever|nothing|it|something|anything|everything)_"
    r"|\w*(?:[tT]old|[tT]ells|[wW]hoever|[nN]obod|[aA]new|(?<![fF]o)[rR]eign|[oO]bey|[mM]eddl|[sS]tranger|[hH]urr"
    r"|[dD]oor|[jJ]udg|Story|_story|shut_out|put_right|stands_still))\w*)",
    re.MULTILINE,
)
TESTS = re.compile(r"def (test_\w+)")
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


def places(path: Path, found: Iterable[re.Match[str]]) -> list[str]:
    """`file:line: text` of each match."""
    return [f"{path.relative_to(ROOT)}:{each.string.count(chr(10), 0, each.start(1)) + 1}: {each[1]}" for each in found]


def test_replaced_words_do_not_come_back() -> None:
    found = [text for path in pages_and_modules() for text in places(path, WORDS.finditer(path.read_text()))]
    assert not found, f"use the terms of docs/glossary.md: {found}"


def test_names_of_tests_are_short_and_plain() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        found += places(path, (each for each in TESTS.finditer(text) if len(each[1]) > LONGEST_NAME))
        found += places(path, NAMES.finditer(text))
    assert not found, f"at most {LONGEST_NAME} characters, and the terms of docs/glossary.md: {found}"


def test_names_of_functions_say_what_they_do() -> None:
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        found += places(path, (each for each in VAGUE.finditer(path.read_text()) if each[1] not in STANDARD))
    assert not found, f"apply, append, acquire, remove, invalidate, release, record or update: {found}"


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = []
    for folder in ("src", "tests", "tools", "bench", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found += places(path, CLAUSES.finditer(path.read_text()))
    assert not found, f"name the value, or what the function does or checks: {found}"
