"""Runs every target from a fixed seed: `FUZZ_SECONDS` for each kind of input, 20 for each target in slow tests.

`make fuzz` runs them for long. The other half of the targets is in `test_fuzz_more.py`.
"""

from __future__ import annotations

import os

import pytest

from tests.fuzz.engine import FEWEST, Finding, Target, corpus_of, executions, keep
from tests.fuzz.targets import KINDS, TARGETS, share_s

SEED = 20_261_121
# The seconds for each kind of input, which its targets share.
KIND_S = float(os.environ.get("FUZZ_SECONDS", "60"))
TARGET_S = 20.0


@pytest.mark.parametrize("target", TARGETS[::2], ids=lambda target: target.name)
def test_random_bytes_get_a_clear_error(target: Target) -> None:
    run(target, SEED, share_s(target.name, KIND_S))


def test_every_target_begins_with_kept_inputs() -> None:
    assert [target.name for target in TARGETS if not corpus_of(target.name)] == []


def test_every_target_is_of_one_kind() -> None:
    assert sorted(name for names in KINDS.values() for name in names) == sorted(target.name for target in TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_random_bytes_get_a_clear_error_for_longer(target: Target) -> None:
    run(target, SEED + 1, TARGET_S)


def run(target: Target, seed: int, seconds: float) -> None:
    count = 0
    try:
        for _ in executions(target, seed, seconds):
            count += 1
    except Finding as finding:
        path = keep(target.name, finding.data, "failed")
        pytest.fail(f"input {count} of seed {seed}, kept as {path.name}: {finding}\n{finding.__cause__!r}")
    assert count >= FEWEST
