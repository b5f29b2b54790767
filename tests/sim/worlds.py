"""All simulated worlds, by the names that the command line and the documents call them."""

from __future__ import annotations

from tests.sim.cluster import ManyNodes
from tests.sim.compacted import CompactedNode
from tests.sim.copying import CopyingCluster
from tests.sim.crowded import CrowdedCluster, CrowdedNode
from tests.sim.damaged import DamagedCluster
from tests.sim.directories import TwoDirectories
from tests.sim.hosts import HostsCluster
from tests.sim.keyed import KeyedCluster
from tests.sim.lasting import LastingCluster
from tests.sim.linked import LinkedClusters
from tests.sim.one_node import OneNode
from tests.sim.permissions import GuardedCluster
from tests.sim.producers import ProducersCluster
from tests.sim.quorum_box import QuorumRun
from tests.sim.reassignments import MovingCluster
from tests.sim.runs import Scenario
from tests.sim.throttled import ThrottledCluster
from tests.sim.transactional import TransactionalNode

KINDS: tuple[type[Scenario], ...] = (
    OneNode,
    ManyNodes,
    MovingCluster,
    CopyingCluster,
    TwoDirectories,
    CompactedNode,
    TransactionalNode,
    ProducersCluster,
    LastingCluster,
    KeyedCluster,
    GuardedCluster,
    ThrottledCluster,
    QuorumRun,
    LinkedClusters,
)
# Worlds with faults of their own instead of the common ones come last.
ALL_KINDS: tuple[type[Scenario], ...] = (*KINDS, DamagedCluster, HostsCluster)
WORLDS: dict[str, type[Scenario]] = {kind.world_name: kind for kind in ALL_KINDS}
# Worlds that run by name alone, and not with all others: tests have seeds of these.
MORE_WORLDS: dict[str, type[Scenario]] = {kind.world_name: kind for kind in (CrowdedNode, CrowdedCluster)}
