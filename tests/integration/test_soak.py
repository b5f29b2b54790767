"""The soak of `make soak`, for three minutes: a broker restarts under load, and every acknowledged record is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import soak


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_minutes_of_load_over_a_restart_lose_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = soak.main(["--minutes", "3", "--rate", "500", "--keep", str(tmp_path)])
    shown = capfd.readouterr()
    assert "broker 1 restarts" in shown.err
    assert code == 0, shown.out + shown.err
    outcome = json.loads((tmp_path / "soak.json").read_text())
    assert outcome["lost"] == outcome["repeated"] == outcome["failed"] == 0
    assert outcome["read"] == outcome["acknowledged"] == outcome["sent"] >= 3 * 60 * 500
    assert "MB/h" in shown.out and "processor seconds" in shown.out
