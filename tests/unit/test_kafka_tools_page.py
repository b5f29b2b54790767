"""Every row of docs/kafka-tools.md names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_rows_of_the_page_of_kafkas_tools_name_tests_that_exist() -> None:
    rows = [line for line in (ROOT / "docs" / "kafka-tools.md").read_text().splitlines() if line.startswith("| `")]
    named = {re.findall(r"`(test_\w+)`", row)[-1] for row in rows}
    assert len(rows) > 30
    written = "".join(path.read_text() for path in (ROOT / "tests" / "interop").glob("test_*.py"))
    assert not {name for name in named if f"def {name}(" not in written}
