"""aiokafka's own tests against one node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import known_failures
from tests.interop.aiokafka_suite import run_suite, sources
from tests.interop.brokers import start_broker
from tests.interop.packages import MissingError

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(2500)]

SUITE = "aiokafka"
# Fewer would mean that the suite did not run.
EXPECTED_COUNT = 208
# Some of them ask node 0, and others wait for topics that are never created.
SETTINGS = {"node.id": 0, "num.partitions": 2, "auto.create.topics.enable": "true"}


def test_aiokafka(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    pytest.importorskip("aiokafka")
    try:
        sources()
    except MissingError as error:
        pytest.skip(f"aiokafka's tests are not available: {error}")
    with start_broker(tmp_path / "broker", SETTINGS) as broker:
        outcomes = run_suite(broker.bootstrap, tmp_path)
        failed = {test: reason for test, reason in outcomes.items() if reason is not None}
        if any(known_failures.find(SUITE, test) is None for test in failed):
            # Some of these tests race with their own client; a test that fails twice counts as failed.
            names = " or ".join(sorted({test.split("::")[-1].split("[")[0] for test in failed}))
            again = run_suite(broker.bootstrap, tmp_path, ("-k", names))
            outcomes.update({test: again.get(test, reason) for test, reason in failed.items()})
    assert len(outcomes) >= EXPECTED_COUNT, f"only {len(outcomes)} tests ran"
    record_property("tests", len(outcomes))
    known_failures.check_outcomes(SUITE, outcomes)
