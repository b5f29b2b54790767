"""Warns at the start of a single node about internal topics that it cannot create.

Kafka's defaults need three brokers for them. In a larger cluster the other brokers may not be registered yet, so only a
node whose quorum has no other voter, and whose metadata has no other broker, logs the warning.
"""

from __future__ import annotations

from odradek.common.log_lines import get_logger
from odradek.server.broker import Broker

_log = get_logger("server.broker")


def warn_of_internal_topics(broker: Broker) -> None:
    """Log whether this node cannot serve groups or transactions, and what to set."""
    alone = broker.raft.leads and len(broker.raft.node.voters) == 1
    if not alone or len(broker.publisher.image.brokers) != 1:
        return
    for what, host in (("groups", broker.coordinator), ("transactions", broker.transactions.coordinator)):
        lack = host.lacks_brokers()
        if lack:
            _log.warning(f"{what} cannot be served", reason=lack)
