"""librdkafka's own tests against one node, or three where they ask for them.

All are slow: librdkafka and its tests are compiled first, which takes two minutes of processor time. Stock clients that
are built on it (confluent-kafka) are in many other tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from odradek.testing.processes import ProcessCluster
from tests.interop import known_failures
from tests.interop.brokers import LIBRDKAFKA_SETTINGS, start_broker
from tests.interop.librdkafka_suite import Outcome, run_test, runner
from tests.interop.packages import MissingError
from tests.support.nodes.apache_kafka import require_kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(3600)]

# The tests mostly wait: three at a time keep two cores busy without making each other late.
CONCURRENCY = int(os.environ.get("INTEROP_JOBS", "3"))

CORE = (
    "0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0017 0022 0026 0029 0030 0031 0034 0036 0041 0044 0048 "
    "0052 0054 0059 0067 0070 0073 0085 0092 0110 0112 0140"
)
# A few of them for each kind of login: produce, consume, partitioners, offsets, queues, headers, empty topics, times.
SMOKE = "0001 0003 0005 0011 0012 0013 0017 0044 0048 0073"
GROUPS = "0018 0019 0033 0040 0045 0050 0051 0056 0061 0069 0089 0091 0093 0099 0102 0113 0118 0122 0127 0130 0132 0137"
# 0045 ends at its first subtest that fails, and one of them fails for a reason of librdkafka's own.
SUBSCRIPTION_PARTS = (
    "0045/do_test_regex",
    "0045/do_test_resubscribe_with_regex",
    "0045/do_test_subscribe_many_updates",
)
# 0113 is run with the sessions that it asks for: the consumer protocol has them in the broker's settings.
NEW_GROUP_NUMBERS = (*(number for number in GROUPS.split() if number not in ("0045", "0113")), *SUBSCRIPTION_PARTS)
TRANSACTIONS = "0075 0076 0086 0090 0094 0129"
SHARE = "0170 0171 0172 0173 0174 0175 0176 0177 0178 0179 0180 0181 0184 0185"
# The tests that reach a broker and belong to none of the other selections.
OTHERS = (
    "0016 0020 0021 0035 0038 0039 0042 0049 0053 0055 0057 0060 0063 0064 0065 0068 0082 0083 0084 0088 0114 0123 0125"
)
# The subtests of 0081, which ends at its first failure, about groups, offsets, configurations and topics.
ADMIN_PARTS = (
    "CreateTopics DeleteTopics CreatePartitions AlterConfigs IncrementalAlterConfigs DescribeConfigs "
    "DescribeConfigs_groups DeleteRecords ListConsumerGroups DescribeConsumerGroups DescribeTopics DescribeCluster "
    "DeleteGroups DeleteConsumerGroupOffsets ListOffsets AlterConsumerGroupOffsets ListConsumerGroupOffsets"
)


@dataclass(frozen=True)
class Suite:
    """One selection of librdkafka's tests and how they are run."""

    name: str
    numbers: tuple[str, ...]
    quick: bool = False
    settings: dict[str, object] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 300.0


NEW_GROUPS = {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}
SHORT_SESSIONS: dict[str, object] = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 2000,
    "group.consumer.heartbeat.interval.ms": 2000,
}
AUTHORIZED: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SUITES = (
    Suite("librdkafka-core-quick", tuple(CORE.split()), quick=True, timeout_s=120),
    Suite("librdkafka-core", tuple(CORE.split())),
    Suite("librdkafka-others", tuple(OTHERS.split())),
    Suite(
        "librdkafka-groups", tuple(GROUPS.split()), timeout_s=1200, settings={"group.initial.rebalance.delay.ms": 3000}
    ),
    Suite("librdkafka-admin", ("0077", "0081"), timeout_s=600),
    Suite("librdkafka-admin-parts", tuple(f"0081/do_test_{part}" for part in ADMIN_PARTS.split())),
    Suite("librdkafka-transactions", tuple(TRANSACTIONS.split()), timeout_s=600),
    Suite("librdkafka-acls", ("0109", "0115", "0119"), settings=AUTHORIZED),
    Suite(
        "librdkafka-no-auto-create",
        ("0045",),
        settings={"auto.create.topics.enable": "false"},
        arguments=("-s", "noautocreate"),
    ),
    Suite("librdkafka-core-kip848", tuple(CORE.split()), quick=True, environment=NEW_GROUPS),
    Suite("librdkafka-groups-kip848", NEW_GROUP_NUMBERS, environment=NEW_GROUPS, timeout_s=1200),
    Suite("librdkafka-sessions-kip848", ("0113",), settings=SHORT_SESSIONS, environment=NEW_GROUPS, timeout_s=1200),
    Suite("librdkafka-share", tuple(SHARE.split()), timeout_s=1200),
)


class SuiteRun:
    """A broker and the tests of one suite running against it, a few at a time, ahead of the test that asks."""

    def __init__(self, suite: Suite, numbers: list[str], folder: Path) -> None:
        self.suite = suite
        self.folder = folder
        self.broker = start_broker(folder / "broker", {**LIBRDKAFKA_SETTINGS, **suite.settings})
        self.pool = ThreadPoolExecutor(CONCURRENCY)
        self.outcomes: dict[str, Future[Outcome]] = {
            number: self.pool.submit(self.run, number, "1") for number in numbers
        }

    def run(self, number: str, attempt: str) -> Outcome:
        suite = self.suite
        return run_test(
            number,
            self.broker.bootstrap,
            self.folder / f"{number.replace('/', '.')}.{attempt}",
            quick=suite.quick,
            arguments=suite.arguments,
            environment=suite.environment,
            timeout_s=suite.timeout_s,
        )

    def stop(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.broker.stop()


class SuiteRuns:
    """At most one suite runs at a time; the next one ends it."""

    def __init__(self, session: pytest.Session, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.current: SuiteRun | None = None

    def of(self, suite: Suite) -> SuiteRun:
        if self.current is None or self.current.suite is not suite:
            self.stop()
            self.current = SuiteRun(suite, self._selected(suite), self.folder / suite.name)
        return self.current

    def stop(self) -> None:
        if self.current is not None:
            self.current.stop()
            self.current = None

    def _selected(self, suite: Suite) -> list[str]:
        """The tests of a suite that this pytest run has collected and that the list does not keep from running."""
        numbers = []
        for item in self.session.items:
            params = getattr(getattr(item, "callspec", None), "params", {})
            if params.get("suite") is suite:
                known = known_failures.find(suite.name, params["number"])
                if known is None or known.run:
                    numbers.append(params["number"])
        return numbers


@pytest.fixture(scope="module")
def suite_runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRuns]:
    try:
        runner()
    except MissingError as error:
        pytest.skip(f"librdkafka's tests cannot be built: {error}")
    runs = SuiteRuns(request.session, tmp_path_factory.mktemp("librdkafka"))
    yield runs
    runs.stop()


EVERY_TEST = [pytest.param(suite, number, id=f"{suite.name}-{number}") for suite in SUITES for number in suite.numbers]


@pytest.mark.parametrize(("suite", "number"), EVERY_TEST)
def test_of_librdkafka(
    suite: Suite, number: str, suite_runs: SuiteRuns, record_property: Callable[[str, object], None]
) -> None:
    known_failures.skip_what_is_not_run(suite.name, number)
    run = suite_runs.of(suite)
    outcome = run.outcomes[number].result()
    if outcome.status == "FAILED" and known_failures.find(suite.name, number) is None:
        # Several of these tests measure time, and the others run beside them: two more tries, once the rest is done.
        for other in run.outcomes.values():
            other.result()
        tries = (run.run(number, attempt) for attempt in ("2", "3"))
        outcome = next((each for each in tries if each.status != "FAILED"), outcome)
    record_property("subtests", outcome.subtest_count)
    if outcome.status == "SKIPPED":
        pytest.skip(f"librdkafka skips it: {outcome.reason}")
    known_failures.check_outcome(suite.name, number, None if outcome.status == "PASSED" else outcome.reason)


@dataclass(frozen=True)
class OverThree:
    """A test that asks for topics of three replicas, and how it is run. `java`: it builds a producer in Java."""

    number: str
    settings: dict[str, object] = field(default_factory=dict)
    racks: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    java: bool = False


NO_AUTO_CREATE: dict[str, object] = {"auto.create.topics.enable": "false"}
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
OVER_THREE = (
    OverThree("0098", java=True),
    OverThree("0101", {"replica.selector.class": RACK_AWARE}, racks=("RACK1", "RACK2", "RACK3")),
    OverThree("0103"),
    OverThree("0107", NO_AUTO_CREATE, arguments=("-s", "noautocreate")),
    OverThree("0111", NO_AUTO_CREATE, arguments=("-s", "noautocreate")),
)


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("wanted", OVER_THREE, ids=lambda wanted: wanted.number)
def test_over_three_brokers(wanted: OverThree, tmp_path: Path) -> None:
    try:
        runner()
    except MissingError as error:
        pytest.skip(f"librdkafka's tests cannot be built: {error}")
    if wanted.java:
        require_kafka()
    settings = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3, "num.partitions": 4}
    directory = tmp_path / "cluster"
    with ProcessCluster(directory, brokers=3, racks=wanted.racks, settings={**settings, **wanted.settings}) as cluster:
        outcome = run_test(
            wanted.number,
            cluster.bootstrap_servers,
            tmp_path / wanted.number,
            quick=False,
            arguments=wanted.arguments,
            java=wanted.java,
            timeout_s=600,
        )
    assert outcome.status == "PASSED", outcome.reason
