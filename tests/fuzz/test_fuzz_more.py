"""The second half of the targets, in a file of its own for another worker."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.test_fuzz import SECONDS, SEED, run


@pytest.mark.parametrize("target", TARGETS[1::2], ids=lambda target: target.name)
def test_whatever_the_bytes_are(target: Target) -> None:
    run(target, SEED, SECONDS)
