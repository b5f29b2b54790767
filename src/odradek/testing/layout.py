"""The plan of a small cluster on one machine: which nodes there are, in which roles, on which ports, and where.

Up to two brokers have one controller among them, more have three: one of three may fail. Internal topics have as many
copies as there are brokers, at most three, and topics that come to be by themselves as well.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import SystemRandom

from odradek.common.errors import ConfigError
from odradek.common.ports import Disk, write_file_durably
from odradek.raft.quorum_state import uuid_text
from odradek.server.startup.format import FormatOptions, format_storage, random_id, read_meta_properties
from odradek.server.startup.honoured_settings import honoured_settings
from odradek.settings.broker import BrokerSettings
from odradek.settings.node import load_node_settings
from odradek.settings.properties import format_properties
from odradek.testing.control_socket import HOST

PROPERTIES_FILE = "server.properties"
FIRST_CONTROLLER_ID = 1001
MAX_COPIES = 3
# Above the brokers' ports, so that both kinds can be counted on from a first one.
CONTROLLER_PORT_DISTANCE = 10_000
MOST_KEPT_PORTS = 200
PLAIN_FORMAT = FormatOptions()
_kept: deque[int] = deque()


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node.

    Attributes:
        port, controller_port: its ports for clients, and as a controller; 0 if it has none.
        host: the address of its listeners.
        directory: has its properties file and, below `data`, its data.
    """

    node_id: int
    roles: tuple[str, ...]
    port: int
    controller_port: int
    rack: str
    directory: Path
    properties: Mapping[str, str] = field(repr=False)
    host: str = HOST

    @property
    def config(self) -> Path:
        return self.directory / PROPERTIES_FILE

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles


def free_ports() -> Iterator[int]:
    """Different free ports.

    Between the plan of a node and its start, other processes may bind any free port, and could get this one. On Linux
    this process keeps a socket bound to it, on all addresses, as a server may want them all: the system then gives it
    to no process that binds any port, but a server can bind it with SO_REUSEADDR as long as no process listens there.
    """
    given: set[int] = set()
    while True:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("", 0))  # it never listens
            port: int = sock.getsockname()[1]
            if sys.platform == "linux":
                _hold(sock.detach())
        if port not in given:
            given.add(port)
            yield port


def _hold(descriptor: int) -> None:
    """Keep a socket open; close the oldest one if there are many."""
    _kept.append(descriptor)
    if len(_kept) > MOST_KEPT_PORTS:
        os.close(_kept.popleft())


def _nodes(brokers: int, controllers: int, first_port: int) -> list[tuple[int, tuple[str, ...], int, int]]:
    """(node id, roles, port, port as controller) of each node; 0 for a port that it does not have."""
    ports = iter(count(first_port)) if first_port else free_ports()
    controller_ports = iter(count(first_port + CONTROLLER_PORT_DISTANCE)) if first_port else ports
    voting = 0 if controllers else 1 if brokers < MAX_COPIES else MAX_COPIES
    nodes: list[tuple[int, tuple[str, ...], int, int]] = []
    for node_id in range(1, brokers + 1):
        votes = node_id <= voting
        roles: tuple[str, ...] = ("broker", "controller") if votes else ("broker",)
        nodes.append((node_id, roles, next(ports), next(controller_ports) if votes else 0))
    for node_id in range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers):
        nodes.append((node_id, ("controller",), 0, next(controller_ports)))
    return nodes


def _listeners(host: str, port: int, controller_port: int) -> str:
    listeners = [f"PLAINTEXT://{host}:{port}"] if port else []
    listeners += [f"CONTROLLER://{host}:{controller_port}"] if controller_port else []
    return ",".join(listeners)


def plan_cluster(
    directory: Path,
    *,
    brokers: int = 3,
    controllers: int = 0,
    racks: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    first_port: int = 0,
    hosts: Sequence[str] = (),
) -> list[NodePlan]:
    """The nodes of a cluster, brokers first.

    Args:
        directory: each node gets one below it.
        controllers: dedicated controllers; if 0, one or three of the brokers are controllers too.
        racks: assigned to the brokers in turn.
        settings: Kafka's keys for all nodes, which override those of the plan.
        first_port: of the first broker, the others follow; 0 chooses free ports.
        hosts: an address for each node, in order; without it all use the loopback.
    Raises:
        ConfigError: no broker at all, or an even number of controllers.
    """
    if brokers < 1:
        raise ConfigError(["a cluster needs at least one broker"])
    if controllers and controllers % 2 == 0:
        raise ConfigError(
            [f"{controllers} controllers survive no more failures than {controllers - 1}: take an odd number"]
        )
    nodes = _nodes(brokers, controllers, first_port)
    addresses = list(hosts) or [HOST] * len(nodes)
    voters = ",".join(
        f"{node_id}@{host}:{port}" for (node_id, _, _, port), host in zip(nodes, addresses, strict=True) if port
    )
    copies = min(brokers, MAX_COPIES)
    common = {
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(max(1, copies - 1)),
        **{key: str(value) for key, value in (settings or {}).items()},
    }
    plans = []
    for index, (node_id, roles, port, controller_port) in enumerate(nodes):
        own, host = directory / f"node-{node_id}", addresses[index]
        rack = racks[index % len(racks)] if racks and "broker" in roles else ""
        properties = {
            "node.id": str(node_id),
            "process.roles": ",".join(roles),
            "listeners": _listeners(host, port, controller_port),
            "log.dirs": str(own / "data"),
            **({"broker.rack": rack} if rack else {}),
            **common,
        }
        plans.append(NodePlan(node_id, roles, port, controller_port, rack, own, properties, host))
    return plans


def format_cluster(disk: Disk, plans: Sequence[NodePlan], options: FormatOptions = PLAIN_FORMAT, *, now_ms: int) -> str:
    """Write every node's properties, and format those that are new; returns the cluster's id. Blocks.

    Raises:
        ConfigError: the directories hold nodes of different clusters, or settings that a node refuses.
    """
    known = {meta.cluster_id for plan in plans if (meta := read_meta_properties(disk, plan.data_dir)) is not None}
    if len(known) > 1:
        raise ConfigError(
            [f"{plans[0].directory.parent} holds nodes of different clusters: {', '.join(sorted(known))}"]
        )
    random = SystemRandom()
    cluster_id = known.pop() if known else uuid_text(random_id(random))
    for plan in plans:
        settings = write_properties(disk, plan)
        if read_meta_properties(disk, plan.data_dir) is None:
            format_storage(disk, settings, cluster_id, options, random=random, now_ms=now_ms)
    return cluster_id


def write_properties(disk: Disk, plan: NodePlan) -> BrokerSettings:
    """Write a node's properties file and read it as the node will. Raises ConfigError."""
    disk.make_dirs(plan.directory)
    write_file_durably(disk, plan.config, format_properties(dict(plan.properties)).encode("latin-1"))
    return load_node_settings(disk, plan.config, environment={}, honoured=honoured_settings())


def bootstrap_servers(plans: Sequence[NodePlan]) -> str:
    """The value of bootstrap.servers for clients: all brokers."""
    return ",".join(f"{plan.host}:{plan.port}" for plan in plans if plan.port)
