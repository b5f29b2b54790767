"""kafka-python's own integration tests against one node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import known_failures
from tests.interop.brokers import start_broker
from tests.interop.kafka_python_suite import inferred_version, run_suite, sources
from tests.interop.packages import MissingError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1500)]

SUITE = "kafka-python"
# The number of tests that run against Apache Kafka; fewer would mean that the suite did not run.
EXPECTED_COUNT = 49
SETTINGS = {
    "node.id": 0,
    "num.partitions": 4,
    "auto.create.topics.enable": "true",
    "group.min.session.timeout.ms": 1000,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


def test_kafka_python(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    try:
        sources()
    except MissingError as error:
        pytest.skip(f"kafka-python's tests are not available: {error}")
    with start_broker(tmp_path / "broker", SETTINGS) as broker:
        assert inferred_version(broker.bootstrap) >= (4, 0), "kafka-python takes us for an old broker"
        skipped = known_failures.not_run(SUITE)
        unwanted = ("-k", " and ".join(f"not {bare_name(test)}" for test in skipped)) if skipped else ()
        outcomes = run_suite(broker.bootstrap, tmp_path, unwanted)
        failed = {test: reason for test, reason in outcomes.items() if reason is not None}
        if any(known_failures.find(SUITE, test) is None for test in failed):
            # Some of these tests race with their own client; a test that fails twice counts as failed.
            again = run_suite(broker.bootstrap, tmp_path, ("-k", " or ".join(sorted(set(map(bare_name, failed))))))
            outcomes.update({test: again.get(test, reason) for test, reason in failed.items()})
    assert len(outcomes) + len(skipped) >= EXPECTED_COUNT, f"only {len(outcomes)} tests ran"
    record_property("tests", len(outcomes))
    known_failures.check_outcomes(SUITE, outcomes)


def bare_name(test: str) -> str:
    """The function's name without module and parameters."""
    return test.split("::")[-1].split("[")[0]
