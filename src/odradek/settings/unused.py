"""Settings of Kafka that no part of a node reads, each with the reason: its replacement, or the missing feature.

A value other than the default is logged with that reason, at the start or when it is set at run time. The generated
page of settings has the reasons too. A test checks that none is missing.
"""

from __future__ import annotations

from odradek.settings.rules import GUARDS

_THREADS = "one event loop does this work, and there is no pool to size; odradek host runs a broker for each core"
_PURGATORY = "waiting requests leave nothing behind that would have to be purged"
_SLICES = "coordinators load in slices so small that no other request waits for them"
_TICKETS = "tickets are asked for as logins need them: no program and no thread renews them"
_LOGINS = "the kind of login follows from sasl.mechanism and sasl.oauthbearer.*; there are no Java classes to load"
_TLS = "OpenSSL does TLS: ssl.enabled.protocols and ssl.cipher.suites say what is agreed to"
_BATCHED = "records are written as they come, without a wait for others"
# These tune parts that work in another way here; without them nothing changes for clients.
MAPPED = {
    "background.threads": _THREADS,
    "group.coordinator.background.threads": _THREADS,
    "group.coordinator.threads": _THREADS,
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "num.replica.alter.log.dirs.threads": _THREADS,
    "share.coordinator.threads": _THREADS,
    "delete.records.purgatory.purge.interval.requests": _PURGATORY,
    "fetch.purgatory.purge.interval.requests": _PURGATORY,
    "producer.purgatory.purge.interval.requests": _PURGATORY,
    "share.fetch.purgatory.purge.interval.requests": _PURGATORY,
    "offsets.load.buffer.size": _SLICES,
    "transaction.state.log.load.buffer.size": _SLICES,
    "sasl.kerberos.kinit.cmd": _TICKETS,
    "sasl.kerberos.min.time.before.relogin": _TICKETS,
    "sasl.kerberos.ticket.renew.jitter": _TICKETS,
    "sasl.kerberos.ticket.renew.window.factor": _TICKETS,
    "sasl.client.callback.handler.class": _LOGINS,
    "sasl.login.callback.handler.class": _LOGINS,
    "sasl.login.class": _LOGINS,
    "security.providers": _TLS,
    "ssl.keymanager.algorithm": _TLS,
    "ssl.protocol": _TLS,
    "ssl.provider": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
    "controller.quorum.append.linger.ms": _BATCHED,
    "group.coordinator.append.linger.ms": _BATCHED,
    "share.coordinator.append.linger.ms": _BATCHED,
    "queued.max.requests": "queued.max.request.bytes bounds what is queued, by its memory",
    "socket.connection.setup.timeout.max.ms": "each attempt has the timeout socket.connection.setup.timeout.ms",
    "request.timeout.ms": "requests to controllers have the timeout controller.socket.timeout.ms",
}

_CLASSES = "there are no Java classes to load"
_REPORTERS = f"metrics are served in Prometheus' format (odradek.metrics.listener); {_CLASSES}"
_SHARE = "there are no share groups"
_STREAMS = "there are no groups of the streams protocol; Kafka Streams works with classic groups"
_TIERED = "there is no tiered storage"
_WINDOWS = "throttled rates hold for each second"
_IGNORED = {
    "metric.reporters": _REPORTERS,
    "kafka.metrics.reporters": _REPORTERS,
    "kafka.metrics.polling.interval.secs": _REPORTERS,
    "ssl.engine.factory.class": _CLASSES,
    "follower.fetch.last.tiered.offset.enable": _TIERED,
    "group.coordinator.cached.buffer.max.bytes": "coordinators keep no buffer between two writes",
    "log.dir.failure.timeout.ms": "a broker reports a failed directory with each heartbeat, and does not stop over it",
    "log.preallocate": "segments grow as they are written",
    "preallocate": "segments grow as they are written",
    "metadata.max.idle.interval.ms": "no empty records are written to the metadata log",
    "metrics.num.samples": "metrics are not sampled",
    "metrics.recording.level": "metrics are not sampled",
    "metrics.sample.window.ms": "metrics are not sampled",
    "offsets.topic.compression.codec": "committed offsets are stored without compression",
    "replica.socket.receive.buffer.bytes": "the system sizes the buffers of connections between brokers",
}
_IGNORED_FAMILIES = {
    "alter.log.dirs.replication.quota.": _WINDOWS,
    "replication.quota.": _WINDOWS,
    "group.share.": _SHARE,
    "share.": _SHARE,
    "errors.deadletterqueue.": _SHARE,
    "group.streams.": _STREAMS,
    "streams.": _STREAMS,
    "remote.": _TIERED,
    "log.remote.": _TIERED,
    "log.local.": _TIERED,
    "local.retention.": _TIERED,
}


def reason_unused(key: str) -> str:
    """Why a setting of brokers, topics or groups that nothing reads has no effect; "" for others."""
    known = MAPPED.get(key) or _IGNORED.get(key) or GUARDS.get(key)
    if known is not None:
        return known
    return next((reason for prefix, reason in _IGNORED_FAMILIES.items() if key.startswith(prefix)), "")
