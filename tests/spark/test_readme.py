"""The pipeline that README and docs/spark.md let a reader paste runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.queries import numbered
from tests.support.clients import create_topic

ROOT = Path(__file__).resolve().parents[2]


def pipeline(page: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (found,) = [block for block in blocks if "from pyspark_odradek import session" in block]
    return found


def test_the_pages_agree() -> None:
    assert pipeline("README.md") == pipeline("docs/spark.md")


def test_the_pipeline_runs(spark: Any, odradek: str, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    create_topic(odradek, topic)
    numbered(odradek, topic, range(200))
    code = pipeline("README.md").replace("127.0.0.1:9092", odradek).replace('"greetings"', f'"{topic}"')
    assert odradek in code and topic in code
    code, replaced = re.subn(r"query\.awaitTermination\(\d+\)", "query.processAllAvailable()", code)
    assert replaced == 1
    names: dict[str, Any] = {}
    try:
        exec(code, names)  # the code is that of our own page
        assert sum(progress["numInputRows"] for progress in names["query"].recentProgress) == 200
        assert names["query"].exception() is None
    finally:
        if "query" in names:
            names["query"].stop()
