"""Words that the glossary replaces do not come back: each room has at most as many lines with them as are listed here.

A room that has none is not listed. A change that removes some lowers the number; no change raises one.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = re.compile(
    r"\b(told|tells|whoever|nobody|anew|reigns?|obeys?|meddl\w*|strangers?|hurry|lies (?:on|in|there)|left away"
    r"|leave \w+ away|not to be had|cannot be had|stands still|put aside|put right|shut out)\b",
    re.IGNORECASE,
)
# Lines, by room.
LEFT = {
    "docs": 6,
    "src/odradek/server": 12,
    "src/odradek/testing": 5,
    "tests": 460,
}


def room_of(path: Path) -> str:
    """`src/odradek/log` for a module of that room, else the first folder, or the name of a file at the top."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "src":
        return "/".join(parts[: 3 if parts[1] == "odradek" and len(parts) > 3 else 2])
    return parts[0]


def pages_and_modules() -> list[Path]:
    """What users and contributors read: the sources, the pages, the examples and the tools."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for folder in ("src", "docs", "examples", "bench", "tools", "tests"):
        found += [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]
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
