"""The second half of the targets, in a file of its own for another worker."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import Target
from tests.fuzz.targets import TARGETS, share_s
from tests.fuzz.test_fuzz import KIND_S, SEED, run


@pytest.mark.parametrize("target", TARGETS[1::2], ids=lambda target: target.name)
def test_random_bytes_get_a_clear_error(target: Target) -> None:
    run(target, SEED, share_s(target.name, KIND_S))
