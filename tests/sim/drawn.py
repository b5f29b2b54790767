"""Seeds drawn from the commit: other runs with each change, the same ones whenever that commit is tested again."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# `SIM_FIRST=n` draws nothing: the seeds from n on are run.
FIRST = "SIM_FIRST"
# The range of drawn seeds: above those that other tests run each time, and short enough to type.
LOWEST, HIGHEST = 1_001, 999_999


@functools.cache
def first_seed() -> int:
    """The first of the seeds that this commit runs in each world; without a commit the lowest."""
    given = os.environ.get(FIRST)
    if given:
        return int(given)
    command = ["git", "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return LOWEST
    return drawn_from(done.stdout.strip()) if done.returncode == 0 else LOWEST


def drawn_from(commit: str) -> int:
    """The first seed of a commit, of which any number of leading hex digits from eight on says the same."""
    return LOWEST + int(commit[:8], 16) % (HIGHEST - LOWEST)
