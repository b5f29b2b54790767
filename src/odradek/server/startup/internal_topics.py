"""A warning at the start of a node that is a cluster of its own: internal topics that it could not make when asked.

Kafka's defaults want three brokers for them. Where more nodes belong to the cluster they may still be on their way, so
only a node whose quorum has no other voter, and that knows of no other broker, is warned.
"""

from __future__ import annotations

from odradek.common.log_lines import get_logger
from odradek.server.broker import Broker

_log = get_logger("server.broker")


def warn_of_internal_topics(broker: Broker) -> None:
    """Say in the log which of groups and transactions this node cannot serve, and what to set."""
    alone = broker.raft.leads and len(broker.raft.node.voters) == 1
    if not alone or len(broker.publisher.image.brokers) != 1:
        return
    for what, host in (("groups", broker.coordinator), ("transactions", broker.transactions.coordinator)):
        lack = host.lacks_brokers()
        if lack:
            _log.warning(f"{what} cannot be served", reason=lack)
