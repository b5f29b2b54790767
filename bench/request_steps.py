"""The instructions of each step of one request: `python -m bench.request_steps`.

A function of each step is wrapped, in a broker under Valgrind, by one that marks its begin and its end. The
instructions between two marks are the cost of the innermost step. A wrapper costs about 3,000 instructions, half of
them counted in the step and half in the one around it: the steps show where the cost is, `bench.instructions` how much
it is in all.
Needs Valgrind with its headers, a C compiler, and Python's headers.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from bench.brokers import SETTINGS
from bench.instructions import Counter, can_count, counting, small_requests, total_of
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.testing.processes import ProcessCluster, await_all_ready
from tests.support.clients.api_calls import Calls, batch
from tests.support.nodes.node import Node

ROOT = Path(__file__).parents[1]
SOURCE = Path(__file__).with_name("marks.c")
REQUESTS = 20
# Each mark is a file, and a replicated record passes 150: followers that waited longer would fall out of sync.
REPLICATED_REQUESTS = 2
PATIENCE_S = 900
SETTLE_S = 0.5

# Step -> the functions that do it, as module and attribute: where a module has imported a function, it is named there.
STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    "receive: bytes to frames": (("odradek.server.network.connection", "Connection.buffer_updated"),),
    "turn: begin requests, send responses": (("odradek.server.network.connection", "Connection.advance"),),
    "begin: header and context": (("odradek.server.network.requests", "Requests.begin"),),
    "decode the request": (("odradek.server.network.requests", "decode_prefix"),),
    "call the handler": (("odradek.server.network.requests", "Requests.handle"),),
    "Produce: handler": (("odradek.server.handlers.produce", "handle"),),
    "Produce: validate the batch": (("odradek.server.handlers.produce", "admit"),),
    "Produce: wait for the acknowledgement": (("odradek.server.acknowledgement", "Acknowledgement.__init__"),),
    "partition: append": (("odradek.replica.partition", "Partition.append_as_leader"),),
    "log: offsets, producer, epochs": (
        ("odradek.log.log", "Log.append_as_leader"),
        ("odradek.log.log", "Log.append_with_offsets"),
    ),
    "segment: write": (("odradek.log.segment", "Segment.write"),),
    "segment: index": (("odradek.log.segment", "Segment.index_batch"),),
    "partition: watermark, wake who waits": (
        ("odradek.replica.partition", "Partition._after_append"),
        ("odradek.replica.partition", "Partition.advance_high_watermark"),
        ("odradek.replica.partition", "Partition.set_high_watermark"),
    ),
    "Fetch: handler": (("odradek.server.handlers.fetch", "handle"),),
    "Fetch: limits and session": (("odradek.server.handlers.fetch", "PendingFetch.__init__"),),
    "Fetch: read partitions": (("odradek.server.handlers.fetch", "PendingFetch.read"),),
    "Fetch: acknowledge as a follower": (("odradek.server.follower_fetch", "FollowerFetch.acknowledge"),),
    "partition: read": (("odradek.replica.partition", "Partition.read"),),
    "log: find the slice": (("odradek.log.log", "Log.read"),),
    "Fetch: response": (("odradek.server.handlers.fetch", "PendingFetch.response"),),
    "Fetch: wait for data": (
        ("odradek.server.long_poll", "LongPoll.__init__"),
        ("odradek.server.long_poll", "LongPoll._woken"),
    ),
    "coordinator: find the shard": (("odradek.coordinator.service", "ShardHost.shard"),),
    "coordinator: a turn of the machine": (("odradek.statemachine.runtime", "Runtime._turn"),),
    "coordinator: decide on a commit": (("odradek.coordinator.group.offsets.commits", "Commits.commit"),),
    "coordinator: encode the records": (("odradek.coordinator.log", "encode_batches"),),
    "coordinator: build the batch": (("odradek.coordinator.batches", "build_batch"),),
    "coordinator: replay": (("odradek.coordinator.group.machine", "GroupMachine.replay"),),
    "coordinator: append": (("odradek.coordinator.log", "PartitionMachineLog.append"),),
    "wait: reserve a place": (("odradek.server.network.requests", "Requests._await"),),
    "response: queue": (("odradek.server.network.requests", "Requests._send_response"),),
    "response: encode": (("odradek.server.network.requests", "encode_response"),),
    "response: write to the socket": (("odradek.server.network.response_writer", "SocketWriter.flush"),),
    "follower: receive an answer": (("odradek.client.connection", "Connection.buffer_updated"),),
    "follower: decode it": (("odradek.client.connection", "decode"),),
    "follower: decide on it": (("odradek.replica.fetcher", "Fetcher.received"),),
    "follower: append": (("odradek.replica.fetcher", "append_from_leader"),),
    "follower: verify": (("odradek.log.follower_append", "read_replicated"),),
    "follower: next request": (("odradek.replica.fetcher", "Fetcher.next_request"),),
    "follower: send it": (("odradek.client.connection", "Connection.send"),),
}
OUTSIDE = "outside: event loop, futures, tasks"
_PRELUDE = """
import sys
sys.path[:0] = [{root!r}, {folder!r}]
from bench.request_steps import wrap_steps
wrap_steps()
import runpy
sys.argv[:] = sys.argv[sys.argv.index("odradek") :]
runpy.run_module("odradek", run_name="__main__", alter_sys=True)
"""
# Under Valgrind nodes are slow: none is fenced, and no controller is replaced.
PATIENT = {
    "broker.session.timeout.ms": 300_000,
    "broker.heartbeat.interval.ms": 60_000,
    "controller.quorum.fetch.timeout.ms": 60_000,
    "controller.quorum.election.timeout.ms": 60_000,
    "replica.lag.time.max.ms": 120_000,
}


def wrap_steps() -> None:
    """Wrap the functions of all steps so that they mark their begin and end; runs in the broker before it starts."""
    mark: Callable[[str], None] = importlib.import_module("marks").mark  # made by `build`
    for step, places in STEPS.items():
        for module, path in places:
            owner: Any = importlib.import_module(module)
            *inner, name = path.split(".")
            for each in inner:
                owner = getattr(owner, each)
            setattr(owner, name, _marked(getattr(owner, name), f"+{step}", f"-{step}", mark))


def _marked(function: Callable[..., Any], begin: str, end: str, mark: Callable[[str], None]) -> Callable[..., Any]:
    @wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        mark(begin)
        try:
            return function(*values, **named)
        finally:
            mark(end)

    return call


def build(folder: Path) -> None:
    """Compile the module that marks; raises CalledProcessError if a header or the compiler is missing."""
    target = folder / f"marks{sysconfig.get_config_var('EXT_SUFFIX')}"
    includes = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", includes, str(SOURCE), "-o", str(target)], check=True)


def stepped(folder: Path) -> list[str]:
    """Build the compiled module; return the launcher that runs the command of a node with its steps marked."""
    folder.mkdir(parents=True, exist_ok=True)
    build(folder)
    return [*counting(folder), sys.executable, "-c", _PRELUDE.format(root=str(ROOT), folder=str(folder))]


class SteppedNode(Node):
    """A node whose steps are marked."""

    start_timeout_s = 600.0

    def command(self) -> list[str]:
        return [*stepped(self.directory), *super().command()]


def steps_of(counter: Counter, work: Callable[[], object], requests: int = REQUESTS) -> dict[str, tuple[float, float]]:
    """Step -> (calls, instructions) of one call of `work`; instructions that belong to no step are OUTSIDE."""
    total = counter.per_request(work)
    counter.control("--instr=on")
    for path in counter.directory.glob("counted.*"):
        path.unlink()
    counter.control("--zero")
    os.kill(counter.pid, signal.SIGUSR2)
    for _ in range(requests):
        work()
    time.sleep(SETTLE_S)
    os.kill(counter.pid, signal.SIGUSR2)
    time.sleep(SETTLE_S)
    counter.control("--instr=off")
    calls, costs = _attributed(counter.directory)
    # Periodic work is outside of all steps, and the dumps add to it: the remainder is closer.
    costs[OUTSIDE] = round(total * requests) - sum(cost for step, cost in costs.items() if step != OUTSIDE)
    return {step: (calls[step] / requests, costs[step] / requests) for step in [*STEPS, OUTSIDE] if costs[step]}


def _dumps(directory: Path) -> Iterator[tuple[str, int]]:
    """(mark, instructions before it), in order."""
    numbered = {int(path.suffix[1:]): path for path in directory.glob("counted.*") if path.suffix[1:].isdecimal()}
    for _, path in sorted(numbered.items()):
        text = path.read_text()
        found = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
        if found is not None:
            yield found[1], total_of(text)


def _attributed(directory: Path) -> tuple[Counts[str], Counts[str]]:
    """(calls, instructions) of each step, over all requests."""
    stack = [OUTSIDE]
    calls: Counts[str] = Counts()
    costs: Counts[str] = Counts()
    for mark, instructions in _dumps(directory):
        costs[stack[-1]] += instructions
        if mark[0] == "+":
            stack.append(mark[1:])
            calls[mark[1:]] += 1
        elif len(stack) > 1:
            stack.pop()
    return calls, costs


def print_steps(title: str, steps: dict[str, tuple[float, float]]) -> None:
    """A table of one request."""
    total = sum(cost for _, cost in steps.values())
    print(f"\n{title}: {total:,.0f} instructions", flush=True)
    for step, (calls, cost) in steps.items():
        print(f"{cost:>10,.0f}  {cost / total:>4.0%}  {calls:>4.1f} calls  {step}")


def replicated_topic(calls: Calls, name: str) -> str:
    """A topic of one partition that node 1 leads and the others follow."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    answer = calls.request(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics[0]
    assert not answer.error_code, answer
    calls.wait_for_leaders(name, 1)
    return name


def one_node() -> None:
    """The requests of clients, at one node."""
    with (
        tempfile.TemporaryDirectory() as name,
        SteppedNode(Path(name), {**SETTINGS, **PATIENT}) as node,
        Calls(node.port) as calls,
    ):
        counter = Counter(node.pid, Path(name))
        for title, request in small_requests(calls).items():
            print_steps(title, steps_of(counter, request))


def three_nodes(counted: int) -> None:
    """A record with acks=all that two followers fetch, as its leader (1) or a follower (2) sees it."""
    small = batch(bytes(128))

    def produce(calls: Calls, topic: str) -> None:
        answer = calls.produce(topic, small, timeout_ms=PATIENCE_S * 1000)
        assert not answer.error_code, answer

    with tempfile.TemporaryDirectory() as name:
        # The controller is a node of its own: otherwise fetches of the quorum's other voters would be marked, too.
        cluster = ProcessCluster(Path(name), brokers=3, controllers=1, settings=PATIENT | {"min.insync.replicas": 3})
        folder = Path(name) / "stepped"
        cluster[counted].launcher = tuple(stepped(folder))
        for node in cluster.nodes.values():
            node.launch()
        try:
            await_all_ready(list(cluster.nodes.values()), SteppedNode.start_timeout_s)
            with Calls(cluster[1].plan.port, timeout_s=PATIENCE_S) as calls:
                topic = replicated_topic(calls, "replicated")
                counter = Counter(cluster[counted].pid, folder)
                steps = steps_of(counter, lambda: produce(calls, topic), REPLICATED_REQUESTS)
            title = "leader" if counted == 1 else "follower"
            print_steps(f"Produce of one record, acks=all, three replicas, the {title}", steps)
        finally:
            cluster.kill()


def main() -> None:
    """Print a table for each request."""
    one_node()
    three_nodes(1)
    three_nodes(2)


if __name__ == "__main__":
    if not can_count():
        sys.exit("Valgrind is not installed: apt-get install valgrind")
    main()
