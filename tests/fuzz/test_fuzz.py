"""Every target, for some seconds and from a fixed seed; `make fuzz MINUTES=…` runs them for long."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import Finding, Target, executions, keep
from tests.fuzz.targets import TARGETS

SEED = 20_261_121
SECONDS = 4.4


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_the_bytes_are(target: Target) -> None:
    count = 0
    try:
        for _ in executions(target, SEED, SECONDS):
            count += 1
    except Finding as finding:
        path = keep(target.name, finding.data, "failed")
        pytest.fail(f"input {count} of seed {SEED}, kept as {path.name}: {finding}\n{finding.__cause__!r}")
    assert count > 20, "the target is too slow to find anything"
