"""The demo itself, with fewer days: it shows all that `make demo` promises, kill -9 included."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_a_month_of_flights_with_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "examples.flights", "--days", "31", "--pace", "300", "--dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    killed = r"broker \d, the leader of flights-\d.*, killed with -9; [1-9][\d,]* flights were acknowledged"
    assert re.search(killed, done.stdout)
    assert "the others have acknowledged a whole day more" in done.stdout
    assert "is back over its files" in done.stdout
    assert "all four queries have gone on by themselves" in done.stdout
    counted = re.search(r"([\d,]+) in, ([\d,]+) out, 0 lost, 0 twice", done.stdout)
    assert counted is not None and counted[1] == counted[2]
    assert int(counted[1].replace(",", "")) > 26_000
    assert "FAILS" not in done.stdout
    page = (folder / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page), "the page needs no network"
    assert (folder / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_with_files_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    command = [sys.executable, "-m", "examples.flights", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert "holds files that are not of a demo" in done.stdout
    assert (tmp_path / "mine.txt").read_text() == "precious"
