"""The tools of scenes: a cluster of processes, topics, producers and consumers."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.cli.connect import Target, administer
from odradek.cli.lab.clients import PATIENCE_S, SESSION_MS
from odradek.testing.processes import ProcessCluster

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.protocol.messages.metadata_response import MetadataResponsePartition

POLL_S = 0.1

# Otherwise the client prints on standard error that a producer was fenced.
_NO_LINES = logging.Logger("odradek.lab", logging.CRITICAL + 1)
_NO_ERRORS = {"error_cb": lambda error: None, "logger": _NO_LINES}


@dataclass(frozen=True, slots=True)
class Step:
    """A step: the action, the expected and the actual result."""

    did: str
    expected: str
    seen: str

    @property
    def is_right(self) -> bool:
        return self.seen == self.expected


@dataclass
class Workbench:
    """A running cluster of three brokers, and the steps of the present scene."""

    cluster: ProcessCluster
    steps: list[Step] = field(default_factory=list)

    @property
    def where(self) -> Target:
        return Target(self.cluster.bootstrap_servers)

    def step(self, did: str, expected: str, look: Callable[[], str]) -> None:
        """Add a step: repeat `look` until its result is the expected one, or the time is over."""
        deadline = time.monotonic() + PATIENCE_S
        while (seen := look()) != expected and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self.steps.append(Step(did, expected, seen))

    def record(self, did: str, expected: str, seen: str) -> None:
        """Add a step with a result that was observed once."""
        self.steps.append(Step(did, expected, seen))

    # -- topics -------------------------------------------------------------------------------------------------------

    def make_topic(self, name: str, *placed: list[int], min_isr: int = 1) -> None:
        """Create a topic with the given replicas of each partition."""

        async def work(cluster: Cluster) -> None:
            from odradek.client.admin import create_topic

            await create_topic(cluster, name, assignment=placed, configs={"min.insync.replicas": str(min_isr)})

        administer(self.where, work)
        for number in range(len(placed)):
            self._await(partial(self._is_led, name, number))

    def _is_led(self, topic: str, number: int) -> bool:
        """Whether every running broker knows the partition and its leader."""
        from odradek.common.errors import ApiError, ErrorCode

        try:
            return all(each.leader_id >= 0 for each in self._seen(topic, number))
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False  # a broker applies the metadata of a new topic a moment after the controller has answered

    def _seen(self, topic: str, number: int = 0) -> list[MetadataResponsePartition]:
        """The state of a partition in the metadata of each running broker."""

        async def work(cluster: Cluster) -> list[MetadataResponsePartition]:
            found = (await cluster.topic(topic)).partitions
            return [each for each in found if each.partition_index == number]

        return [
            each for node in self.cluster.brokers if node.running for each in administer(Target(node.bootstrap), work)
        ]

    def in_sync(self, topic: str) -> str:
        """The ISR, as `1, 2`; one for each broker if they differ."""
        return _one({", ".join(map(str, sorted(each.isr_nodes))) or "none" for each in self._seen(topic)})

    def leader(self, topic: str) -> str:
        """The leader, as `1`; -1 if there is none."""
        return _one({str(each.leader_id) for each in self._seen(topic)})

    def elect_unclean(self, topic: str) -> None:
        async def work(cluster: Cluster) -> None:
            from odradek.client.reassignment import UNCLEAN, elect_leaders

            await elect_leaders(cluster, UNCLEAN, [(topic, 0)])

        administer(self.where, work)

    @staticmethod
    def _await(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(POLL_S)

    # -- writing and reading ------------------------------------------------------------------------------------------

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        given = {key.replace("_", "."): value for key, value in settings.items()}
        return Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0, **_NO_ERRORS, **given})

    def write(self, topic: str, *values: str, **settings: Any) -> str:
        """Produce a record; returns `acknowledged`, or the name of the error."""
        producer = self.producer(acks="all", **settings)
        answers: list[str] = []
        for value in values:
            producer.produce(
                topic, value, on_delivery=lambda error, _: answers.append(error.name() if error else "acknowledged")
            )
        producer.flush(PATIENCE_S)
        return ", ".join(sorted(set(answers))) or "no answer"

    def read(self, topic: str, *, committed: bool = True) -> str:
        """The values of all present records, as `a, b`."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": "odradek-lab-without-a-group",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": level,
                "log_level": 0,
            }
        )
        found: list[str] = []
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                error = message.error() if message is not None else None
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    break
                if message is not None and error is None:
                    found.append((message.value() or b"").decode())
        finally:
            consumer.close()
        return ", ".join(found) or "nothing"

    @contextmanager
    def consumers(self, topic: str, group: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Start consumer processes of one group."""
        session = f"session.timeout.ms={SESSION_MS}"
        command = [sys.executable, "-m", "odradek", "consume", topic, "--group", group, "--command-property", session]
        processes = [
            subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*command, "-b", self.cluster.bootstrap_servers],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(count)
        ]
        try:
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def killed(self, client: str) -> str:
        """Run a client of `odradek.cli.lab.clients`, and kill it (SIGKILL) when it has printed its line.

        Returns:
            The line; `nothing` if it ended, or printed none in time.
        """
        command = [sys.executable, "-m", "odradek.cli.lab.clients", client, self.cluster.bootstrap_servers]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own interpreter and module
        ended = threading.Timer(PATIENCE_S, process.kill)
        ended.start()
        assert process.stdout is not None
        try:
            return process.stdout.readline().strip() or "nothing"
        finally:
            ended.cancel()
            process.kill()
            process.wait()
            process.stdout.close()

    def shares(self, group: str) -> str:
        """The partition counts of the members of a group, as `1, 1, 1`."""

        async def work(cluster: Cluster) -> str:
            from odradek.client.groups import describe_group
            from odradek.common.errors import ApiError

            try:
                members = (await describe_group(cluster, group)).members
            except ApiError:
                return "no group"
            return ", ".join(str(count) for count in sorted(len(member.assignment) for member in members)) or "none"

        return administer(self.where, work)


def _one(answers: set[str]) -> str:
    return " | ".join(sorted(answers))
