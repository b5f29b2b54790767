"""Bugs to plant in how quotas reach the nodes and keep clients back; each is caught by the world of `quotas`."""

from __future__ import annotations

from tests.sim.planted import Bug

QUOTA_BUGS = (
    Bug(
        "followers are counted as consumers",
        "server.handlers.fetch:PendingFetch.__init__",
        "context.payer = None",
        "pass",
        "copies fall behind by what a quota lets consumers have",
    ),
    Bug(
        "a connection keeps the quotas that it began with",
        "server.network.requests:Requests.handle",
        "or payer.version != quotas.version",
        "or False",
        "a changed quota is in force for new connections alone",
    ),
    Bug(
        "a wait has no end",
        "server.network.connection:Connection._on_unmute",
        "self.resume()",
        "pass",
        "what a client sent while it waited is never answered",
    ),
    Bug(
        "a client that must wait is served",
        "server.network.connection:Connection.mute",
        "self._unmute = loop.call_at(ends_s, self._unmuted)",
        "pass",
        "a quota holds for clients that keep to it by themselves",
    ),
    Bug(
        "a snapshot has no quotas",
        "metadata.image:MetadataImage._quota_records",
        "for entity, quotas in self.client_quotas.items():",
        "for entity, quotas in ():",
        "a node that starts at a snapshot limits none",
    ),
    Bug(
        "a client keeps the limit that it had first",
        "security.quota.ledger:QuotaLedger.change_quotas",
        "self._by_client.clear()",
        "pass",
        "a quota that is set, changed or removed is in force for new clients alone",
    ),
    Bug(
        "a changed quota keeps its rate",
        "security.quota.ledger:QuotaLedger._open",
        "found.change_rate(limit, now_ms)",
        "pass",
        "a client that was kept back waits as long as before",
    ),
    Bug(
        "a leader counts no throttled bytes",
        "server.follower_fetch:FollowerFetch.charge_quota",
        "if partition.throttled.as_leader:",
        "if False:",
        "a follower that was down is sent all at once",
    ),
    Bug(
        "a leader holds back replicas in sync",
        "server.follower_fetch:FollowerFetch.is_throttled",
        "or self._replica_id in partition.isr",
        "or False",
        "a throttled partition loses its in-sync replicas, and then takes no writes",
    ),
    Bug(
        "a follower counts no throttled bytes",
        "replica.fetcher_manager:_FetchTask._handle_response",
        "owner.quota.spend(processed.throttled_bytes, clock.monotonic_ms())",
        "pass",
        "a follower that was down fetches all at once",
    ),
    Bug(
        "a follower holds back its replicas in sync",
        "replica.fetcher:Fetcher.throttled",
        "and each.lag != 0",
        "",
        "a throttled follower falls behind",
    ),
    Bug(
        "a replication quota is never removed",
        "server.replication:Replication.change_settings",
        "rate if isinstance(rate, int) else UNLIMITED",
        "rate if isinstance(rate, int) else bucket.rate_per_s",
        "a follower stays behind although nothing throttles it any more",
    ),
    Bug(
        "a partition keeps the throttle that it began with",
        "replica.manager:ReplicaManager._reconfigure",
        "partition.throttled = throttled(overrides, partition.partition_id, self.broker_id)",
        "pass",
        "a list of throttled replicas has no effect on partitions that are led or followed already",
    ),
)
# The first seed of the world that catches it.
CAUGHT_BY_SEED = dict.fromkeys([bug.name for bug in QUOTA_BUGS], 1)
