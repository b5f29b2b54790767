"""Rules for combinations of settings, and settings that are no option() of a component.

The table has the valid values of single settings; here are the rules for two, as Kafka checks them at start.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import cast

from odradek.common.numbers import INT32_MAX, parse_natural
from odradek.settings.table import Value

# (smaller, larger): the first must not exceed the second, unless one is null.
_NOT_ABOVE = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    *(
        (f"group.{kind}.{low}{name}", f"group.{kind}.{high}{name}")
        for kind in ("consumer", "share", "streams")
        for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
        for low, high in (("min.", "max."), ("min.", ""), ("", "max."))
    ),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.max.delivery.count.limit"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
_BELOW = tuple(
    (f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms")
    for kind in ("consumer", "share", "streams")
)
_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
# The minimum of given values; Kafka's table has no bounds for them, but its start checks them.
_AT_LEAST = (("log.roll.ms", 1), ("log.roll.jitter.ms", 0))
# With nothing of these no log would ever be compacted.
_ABOVE_ZERO = ("log.cleaner.io.max.bytes.per.second", "log.cleaner.io.buffer.load.factor")
_DEDUPE_BYTES_PER_THREAD = 1 << 20
_CODECS = range(5)
# The assignors that run in the coordinator, by the names that group.consumer.assignors has for them.
ASSIGNOR_NAMES = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}

# Read by the node itself while it starts, not by one component, with descriptions.
READ_BY_THE_NODE = {
    "advertised.listeners": "Addresses that clients and brokers connect to, where they are not those of listeners.",
    "broker.id": "Older name of node.id.",
    "broker.rack": "Rack of the broker: replicas are spread over racks, and consumers may read in theirs.",
    "config.providers": "Providers of ${…} values in the file: file, directory and env, each with its class."
    " Values that are set at run time are taken as they are.",
    "controller.listener.names": "Listeners of the controllers, by name; brokers connect to the first one.",
    "controller.quorum.bootstrap.servers": "Controllers to ask for the members of a dynamic quorum (KIP-853).",
    "controller.quorum.voters": "The voters of a static quorum, id@host:port each.",
    "early.start.listeners": "Listeners that serve before the permissions are known, the controllers' by default;"
    " without those a quorum of several controllers elects none. Those of brokers serve once all is known.",
    "inter.broker.listener.name": "Listener over which brokers replicate.",
    "listener.security.protocol.map": "Protocol of each listener, NAME:PROTOCOL:"
    " PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    "listeners": "Addresses on which the node accepts connections, NAME://host:port each.",
    "log.dir": "The log directory where log.dirs is not set.",
    "log.dirs": "Log directories, by comma; each on a disk of its own.",
    "metadata.log.dir": "Directory of the metadata log; the first of log.dirs by default.",
    "node.id": "The id of the node in its cluster.",
    "process.roles": "broker, controller, or both.",
    "security.inter.broker.protocol": "Protocol between brokers where inter.broker.listener.name is not set.",
}
_NO_CLASS = "there are no Java classes to load, and"
# Classes that guard a cluster. A warning would be too late: the node would serve clients without them meanwhile.
GUARDS = {
    "principal.builder.class": f"{_NO_CLASS} ACLs would meet other principals than those of this class; take it out:"
    " ssl.principal.mapping.rules and sasl.kerberos.principal.to.local.rules map names",
    "create.topic.policy.class.name": f"{_NO_CLASS} topics would be created without this policy; take it out, and let"
    " ACLs say who may create topics",
    "alter.config.policy.class.name": f"{_NO_CLASS} settings would be changed without this policy; take it out, and let"
    " ACLs say who may change settings",
    "client.quota.callback.class": f"{_NO_CLASS} its quotas would not hold; take it out, and set quotas"
    " (odradek quotas, kafka-configs)",
}
_DEFAULT_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def unserved_security(given: Mapping[str, str], protocols: Container[str], honoured: Container[str]) -> list[str]:
    """One line for each setting that would guard the cluster, and that a node does not act on.

    Args:
        protocols: of the node's own listeners.
    """
    problems = unserved_guards(given, honoured)
    key = "security.inter.broker.protocol"
    between = given.get(key, "PLAINTEXT").strip()
    if between != "PLAINTEXT" and between not in protocols:
        problems.append(f"{key}={between}: no listener has that protocol, and brokers would talk in plain text")
    return problems


def unserved_guards(given: Mapping[str, str], honoured: Container[str]) -> list[str]:
    """One line for each security setting without effect, in a file or at run time."""
    return [
        f"{key}={given[key]}: {reason}"
        for key, reason in GUARDS.items()
        if key not in honoured and given.get(key, "").strip() not in ("", _DEFAULT_PRINCIPALS)
    ]


def check_relations(given: Mapping[str, str], values: Mapping[str, Value]) -> list[str]:
    """One line for each violated rule. Rules are checked only if one of their settings was given."""
    problems = []
    for low, high in _NOT_ABOVE:
        problems += _compare(low, high, given, values, strictly=False)
    for low, high in _BELOW:
        problems += _compare(low, high, given, values, strictly=True)
    for key in _RETENTION:
        value = values[key]
        if key in given and isinstance(value, int) and value < 1 and value != -1:
            problems.append(f"{key}={value}: must be -1 (unlimited) or at least 1")
    problems += _check_log_sizes(given, values)
    queued, largest = cast(int, values["queued.max.request.bytes"]), cast(int, values["socket.request.max.bytes"])
    if 0 < queued < largest:
        problems.append(f"queued.max.request.bytes={queued}: must be at least socket.request.max.bytes ({largest})")
    codec = values["offsets.topic.compression.codec"]
    if codec not in _CODECS:
        problems.append(f"offsets.topic.compression.codec={codec}: must be 0 (none) to 4 (zstd)")
    problems += _check_assignors(cast("list[str]", values["group.consumer.assignors"]))
    if values["inter.broker.listener.name"] is not None and "security.inter.broker.protocol" in given:
        problems.append("inter.broker.listener.name and security.inter.broker.protocol exclude each other: give one")
    return problems


def _check_assignors(named: Sequence[str]) -> list[str]:
    unknown = [name for name in named if name not in ASSIGNOR_NAMES]
    known = [ASSIGNOR_NAMES[name] for name in named if name in ASSIGNOR_NAMES]
    if unknown:
        what = f"there is no {', '.join(unknown)} here, only uniform and range (by these names or their classes')"
    elif not known:
        what = "must name at least one: uniform, range"
    elif len(set(known)) != len(known):
        what = "names an assignor twice"
    else:
        return []
    return [f"group.consumer.assignors={','.join(named)}: {what}"]


def check_quorum(values: Mapping[str, Value]) -> list[str]:
    """Whether node.id and `controller.quorum.voters` agree with the roles."""
    roles, node_id = cast("list[str]", values["process.roles"] or []), values["node.id"]
    voters, problems = _read_voters(values)
    for entry in cast("list[str]", values["controller.quorum.bootstrap.servers"] or []):
        host, _, port = entry.rpartition(":")
        if not host or not parse_natural(port, 65535):
            problems.append(f"controller.quorum.bootstrap.servers: {entry!r} must be host:port")
    if voters and not problems and node_id is not None:
        if "controller" in roles and node_id not in voters:
            known = ", ".join(map(str, voters))
            problems.append(f"node.id={node_id}: a controller must be among controller.quorum.voters ({known})")
        if roles == ["broker"] and node_id in voters:
            problems.append(f"node.id={node_id}: controller.quorum.voters names it, but process.roles is only broker")
    return problems


def _read_voters(values: Mapping[str, Value]) -> tuple[set[int], list[str]]:
    """The ids of the voters, and the problems."""
    voters: set[int] = set()
    problems = []
    for entry in cast("list[str]", values["controller.quorum.voters"] or []):
        node, _, address = entry.partition("@")
        host, _, port = address.rpartition(":")
        number = parse_natural(node, INT32_MAX)
        if number is None or not host or not parse_natural(port, 65535):
            problems.append(f"controller.quorum.voters: {entry!r} must be id@host:port")
        elif number in voters:
            problems.append(f"controller.quorum.voters: node {node} stands twice")
        else:
            voters.add(number)
    return voters, problems


def quorum_warnings(values: Mapping[str, Value]) -> list[str]:
    """Warnings about valid but unwise quorums."""
    voters = len(cast("list[str]", values["controller.quorum.voters"] or []))
    if voters and voters % 2 == 0:
        fewer = voters - 1
        return [f"controller.quorum.voters: {voters} voters survive no more failures than {fewer}; take an odd number"]
    return []


def _check_log_sizes(given: Mapping[str, str], values: Mapping[str, Value]) -> list[str]:
    problems = []
    for key, least in _AT_LEAST:
        value = values[key]
        if isinstance(value, int) and value < least:
            problems.append(f"{key}={value}: must be at least {least}")
    problems += [
        f"{key}={values[key]}: must be above 0" for key in _ABOVE_ZERO if key in given and cast(float, values[key]) <= 0
    ]
    buffer, threads = cast(int, values["log.cleaner.dedupe.buffer.size"]), cast(int, values["log.cleaner.threads"])
    if buffer // max(1, threads) <= _DEDUPE_BYTES_PER_THREAD:
        problems.append(f"log.cleaner.dedupe.buffer.size={buffer}: must be above 1 MiB for each of log.cleaner.threads")
    return problems


def _compare(
    low: str, high: str, given: Mapping[str, str], values: Mapping[str, Value], *, strictly: bool
) -> list[str]:
    smaller, larger = values.get(low), values.get(high)
    if (low not in given and high not in given) or smaller is None or larger is None:
        return []
    smaller, larger = cast(int, smaller), cast(int, larger)
    if smaller > larger or (strictly and smaller == larger):
        relation = "below" if strictly else "at most"
        return [f"{low}={smaller}: must be {relation} {high} ({larger})"]
    return []
