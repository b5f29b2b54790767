"""Pages name the tests that show what they say: each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_NAMED = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")


@pytest.mark.parametrize("page", ["durability.md", "groups.md", "transactions.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    missing = []
    for path, name in _NAMED.findall((ROOT / "docs" / page).read_text()):
        file = ROOT / path
        if not file.exists() or (name and f"def {name}(" not in file.read_text()):
            missing.append(f"{path}::{name}" if name else path)
    assert not missing, f"docs/{page} names what is not there: {missing}"
