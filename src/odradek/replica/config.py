"""Settings of replicas and of what they answer."""

from __future__ import annotations

from odradek.common.config import config, option


@config
class ReplicaConfig:
    """What all partitions of a broker go by."""

    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        default=57_671_680,
        unit="bytes",
        doc="The most that one Fetch is answered with; a first batch that is larger is given all the same.",
    )
