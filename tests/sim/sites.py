"""Two clusters in one box: each is a site with machines of its own, and all share a loop, a network and faults."""

from __future__ import annotations

from typing import Any

from tests.sim.cluster import SETTINGS
from tests.sim.world import PORT, Machine, World


class Site(World):
    """The machines of one cluster. All else that is asked of it is the world's: time, the network, counters.

    Clients and checkers of a site see its machines alone. Faults are the world's, and hit those of all sites.
    """

    def __init__(self, whole: World, name: str, *, settings: dict[str, str]) -> None:
        """`settings` are of every broker of this site, above the world's."""
        # `World.__init__` is not called: a site is a part of an existing world.
        self._whole = whole
        self.name = name
        self.machines = {}
        self.settings = {**whole.settings, **settings}
        self.cluster_id = f"a-cluster-in-the-{name}"[:22].ljust(22, "-")

    def __getattr__(self, name: str) -> Any:
        if name == "_whole":  # asked for by what looks at a half-made object
            raise AttributeError(name)
        return getattr(self._whole, name)

    def add_machine(self, name: str, node_id: int, settings: dict[str, str] | None = None) -> Machine:
        machine = super().add_machine(name, node_id, settings)
        self._whole.machines[name] = machine
        return machine

    def add_nodes(self, count: int) -> None:
        """Nodes that are brokers and controllers, with ids from 1."""
        hosts = {node_id: f"{self.name}-{node_id}" for node_id in range(1, count + 1)}
        voters = ",".join(f"{node_id}@{host}:{PORT + 1}" for node_id, host in hosts.items())
        copies = {
            **SETTINGS,
            "default.replication.factor": str(count),
            "offsets.topic.replication.factor": str(count),
            "transaction.state.log.replication.factor": str(count),
            "min.insync.replicas": "2" if count > 1 else "1",
        }
        for node_id, host in hosts.items():
            listeners = f"PLAINTEXT://{host}:{PORT},CONTROLLER://{host}:{PORT + 1}"
            roles = {"process.roles": "broker,controller", "controller.listener.names": "CONTROLLER"}
            quorum = {"listeners": listeners, "controller.quorum.voters": voters}
            self.add_machine(host, node_id, {**copies, **roles, **quorum})
