"""Clusters of real processes for integration tests, and the requests of tests to their nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from odradek.testing.processes import NodeProcess, ProcessCluster
from tests.support.clients.api_calls import Calls
from tests.support.disks.file_system import Ballast, small_tmpfs
from tests.support.waiting import PATIENCE_S, eventually

T = TypeVar("T")
CONTROLLERS = 2


class Cluster(ProcessCluster):
    """A cluster of processes; node ids are those of `odradek.testing.layout`.

    A node that ended by itself is reported where the test prints, with all that says why.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        """Take the arguments of `ProcessCluster`."""
        super().__init__(*given, **named)
        for node in self.nodes.values():
            node.stop_timeout_s = PATIENCE_S

    def stop(self) -> None:
        """Report who is gone, and stop all that runs. Raises NodeFailedError."""
        for node in self.nodes.values():
            if node.process is not None and not node.running:
                sys.stderr.write(node.failed(f"ended by itself with {node.process.poll()}").args[0] + "\n")
        super().stop()

    def active_controller(self) -> int:
        """The leader of the quorum, as the first controller that answers knows it; -1 where it knows none."""
        for node in self.controllers:
            if node.running and not node.paused:
                with Calls(node.plan.controller_port, host=node.plan.host) as calls:
                    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
                    return int(calls.request(ApiKey.DESCRIBE_CLUSTER, 1, request).controller_id)
        return -1

    def await_controller(self, *, other_than: int = -1) -> int:
        """Wait for an active controller, another one than that; returns its node id."""
        return eventually(lambda: (leader := self.active_controller()) not in (-1, other_than) and leader)

    def serving_brokers(self) -> list[NodeProcess]:
        return [node for node in self.brokers if node.running and not node.paused]


def metadata(node: NodeProcess, *topics: str) -> MetadataResponse:
    """The metadata of one broker, of all topics where none is named."""
    asked = [MetadataRequestTopic(name=topic) for topic in topics] or None
    with Calls(node.plan.port, host=node.plan.host) as calls:
        answer: MetadataResponse = calls.request(
            ApiKey.METADATA, 12, MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        )
        return answer


def topic_at(node: NodeProcess, topic: str) -> MetadataResponseTopic:
    """The metadata of a topic, as one broker answers it."""
    (found,) = metadata(node, topic).topics
    return found


def await_in_sync(
    nodes: Iterable[NodeProcess], topic: str, *, partitions: int, copies: int, timeout_s: float = PATIENCE_S
) -> None:
    """Wait until a topic has all partitions and each of them all its copies in sync, as each of these brokers knows."""
    for node in nodes:
        eventually(partial(_is_whole, node, topic, partitions, copies), patience_s=timeout_s)


def _is_whole(node: NodeProcess, topic: str, partitions: int, copies: int) -> bool:
    return [len(each.isr_nodes) for each in topic_at(node, topic).partitions] == [copies] * partitions


@contextmanager
def small_disks(
    directory: Path, size_bytes: int, settings: Mapping[str, object]
) -> Iterator[tuple[Cluster, dict[int, Ballast]]]:
    """A running cluster of three, each with all its data on a file system of its own, and the ballast of each."""
    with ExitStack() as stack:
        ballasts = {
            node_id: Ballast(stack.enter_context(small_tmpfs(directory / f"node-{node_id}" / "data", size_bytes)))
            for node_id in (1, 2, 3)
        }
        yield stack.enter_context(Cluster(directory, settings=settings)), ballasts
