"""Programs of a page of docs, run as they are but for the broker's address."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).resolve().parents[2] / "docs"
ADDRESS = "127.0.0.1:9092"
# The lines that each program of docs/clients.md prints.
HELLO = sorted(f"hello {number}" for number in range(10))


def snippets(page: str, language: str, bootstrap: str) -> list[str]:
    """The blocks of a language on a page, in order, with `bootstrap` in the place of the address."""
    text = (PAGES / page).read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block.replace(ADDRESS, bootstrap) for block in found]
