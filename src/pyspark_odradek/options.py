"""The options of the format `odradek`: names, defaults and meaning are those of Spark's Kafka source and sink.

Spark hands the names over in lower case. A name that is nearly one of ours is refused, because a misspelt limit that
is ignored in silence is found at night; a name that is far from all of ours is warned about.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from odradek.common.numbers import INT32_MAX, INT64_MAX
from pyspark_odradek.errors import OptionError
from pyspark_odradek.value_options import REFERENCES, REGISTRY_OPTIONS, RegistryAddress, value_options

log = logging.getLogger("pyspark_odradek")

Offsets: TypeAlias = dict[str, dict[int, int]]
EARLIEST = -2  # ListOffsets' own numbers, which Spark's JSON uses too
LATEST = -1

READ_OPTIONS = [
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "groupId",
    "gate",
    "standby",
    "pollTimeoutMs",
    "kafkaConsumer.pollTimeoutMs",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    *REGISTRY_OPTIONS,
    REFERENCES,
    "badRecords",
    "deadLetterTopic",
]
WRITE_OPTIONS = [
    "sink",
    "topic",
    "includeHeaders",
    "delivery",
    "exactlyOnceWriters",
    "stagingLocation",
    "transactionalIdPrefix",
    "markerTopic",
    "gate",
    "groupId",
    "createTopic",
    "topicPartitions",
    "topicReplicationFactor",
    "asyncProgressTrackingEnabled",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    *REGISTRY_OPTIONS,
    REFERENCES,
]
# Options of Spark's Kafka source that have no counterpart here, and what there is instead.
WITHOUT_EFFECT = {
    "groupIdPrefix": "reading needs no consumer group; groupId makes the query a member of one",
    "kafka.group.id": "reading needs no consumer group; groupId makes the query a member of one",
    "fetchOffset.numRetries": "offsets are asked for again until kafka.default.api.timeout.ms is over",
    "fetchOffset.retryIntervalMs": "offsets are asked for again after 50 ms, then less and less often",
}
# Options that Spark itself adds to those of a source or sink.
OF_SPARK = [
    "path",
    "checkpointLocation",
    "queryName",
    "outputMode",
    "format",
    "schema",
    "userSpecifiedSchema",
    # of a table in SQL
    "provider",
    "owner",
    "location",
    "external",
    "is_managed_location",
    "comment",
]
# As Spark's Kafka source refuses them: they contradict how it reads.
REFUSED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are bytes; use cast or from_json on the column",
    "kafka.value.deserializer": "values are bytes; use cast or from_json on the column",
    "kafka.key.serializer": "keys are strings or bytes; cast the column",
    "kafka.value.serializer": "values are strings or bytes; cast the column",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "kafka.enable.auto.commit": "the checkpoint keeps the query's position; groupId commits it for tools that show lag",
    "kafka.partitioner.class": "partitioners are Java classes; keys are placed as by Kafka's own, and a column "
    "partition says otherwise",
}
# Names, in small letters, of options whose values are written down nowhere.
SECRET = re.compile(r"password|passphrase|secret|jaas|token|credential")
# Settings of Kafka's Java clients that the reading side honours.
READ_SETTINGS = [
    "bootstrap.servers",
    "client.id",
    "isolation.level",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "max.partition.fetch.bytes",
    "fetch.max.wait.ms",
    "check.crcs",
    "security.protocol",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.ca.location",
    "ssl.certificate.location",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "https.ca.location",
    "sasl.username",
    "sasl.password",
]
# The levels that a codec takes, from the lowest to the highest.
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}


@dataclass(frozen=True)
class Timestamps:
    """Positions by time: one for all partitions, or one for each that is named; milliseconds since 1970 UTC."""

    for_all_ms: int | None = None
    by_partition_ms: Offsets = field(default_factory=dict)


@dataclass(frozen=True)
class ReadOptions:
    """A query's options after validation; `starting` and `ending` are EARLIEST, LATEST, offsets or timestamps."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)
    starting: int | Offsets | Timestamps = LATEST
    starting_strategy: str = "error"
    ending: int | Offsets | Timestamps = LATEST
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    max_bytes_per_trigger: int | None = None
    group_id: str | None = None
    gate: str | None = None
    standby: bool = False
    poll_timeout_ms: int = 50
    read_timeout_ms: int | None = None
    value_format: str = "binary"
    value_schema: str | None = None
    value_message: str | None = None
    registry: RegistryAddress | None = None
    registry_subject: str | None = None
    registry_references: str | None = None
    bad_records: str = "fail"
    dead_letter_topic: str | None = None
    kafka: dict[str, str] = field(default_factory=dict)

    @property
    def may_start_at_the_end(self) -> bool:
        """Whether a new query starts where the log of a partition ends at that moment, so at another place later."""
        if isinstance(self.starting, Timestamps):
            return self.starting_strategy == "latest"
        if isinstance(self.starting, dict):  # without failOnDataLoss an offset behind the log is its end
            return LATEST in _values(self.starting) or not self.fail_on_data_loss
        return self.starting == LATEST

    def wants(self, topic: str, partition_id: int) -> bool:
        """Whether the query reads this partition."""
        if self.assigned:
            return partition_id in self.assigned.get(topic, ())
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.topics


def parse_read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Validate a query's options.

    Args:
        given: as Spark hands them over; names in any case.
        streaming: a stream starts at `latest` by default and has no end; a batch query starts at `earliest`.
    Raises:
        OptionError: with the name of the option and what it may be.
    """
    options = lowered(given)
    check_names(options, READ_OPTIONS)
    kafka = kafka_settings(options)
    topics, pattern, assigned = _subject(options)
    _judge_other_kind(options, streaming)
    starting = _position(options, "starting", LATEST if streaming else EARLIEST)
    ending = _position(options, "ending", LATEST)
    if not streaming:
        _refuse_empty_batch(starting, ending)
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("latest", "error"):
        raise OptionError("startingOffsetsByTimestampStrategy is latest or error")
    parsed = ReadOptions(
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        starting_strategy=strategy,
        ending=ending,
        fail_on_data_loss=boolean(options, "failOnDataLoss", True),
        include_headers=boolean(options, "includeHeaders", False),
        min_partitions=count(options, "minPartitions"),
        max_records_per_partition=count(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=count(options, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=count(options, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_duration_ms(options, "maxTriggerDelay", 15 * 60_000),
        max_bytes_per_trigger=_size_bytes(options, "maxBytesPerTrigger"),
        group_id=options.get("groupid") or None,
        gate=lease_name(options),
        standby=boolean(options, "standby", False),
        poll_timeout_ms=_duration_ms(options, "pollTimeoutMs", 50),
        read_timeout_ms=count(options, "kafkaConsumer.pollTimeoutMs"),
        **value_options(options, topics or tuple(assigned), kafka),
        kafka=kafka,
    )
    _refuse_contradictions(parsed)
    return parsed


def _judge_other_kind(options: Mapping[str, str], streaming: bool) -> None:
    """Refuse what would end a stream, and warn of what has no effect on a batch query."""
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name.lower() in options:
                raise OptionError(f"{name} is for batch queries; a stream ends by its trigger (availableNow) or stop()")
        return
    for name in (
        "minOffsetsPerTrigger",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "maxTriggerDelay",
        "groupId",
        "gate",
        "standby",
    ):
        if name.lower() in options:
            log.warning("%s has an effect only on a streaming query", name)


def _refuse_empty_batch(starting: int | Offsets | Timestamps, ending: int | Offsets | Timestamps) -> None:
    """A batch query reads from one offset to another: neither may be where there is nothing to read."""
    if starting == LATEST:
        raise OptionError("startingOffsets=latest makes no sense in a batch query: it would read nothing")
    if ending == EARLIEST:
        raise OptionError("endingOffsets=earliest makes no sense: it would read nothing")
    if isinstance(ending, dict) and EARLIEST in _values(ending):
        raise OptionError("endingOffsets may not hold -2 (earliest)")
    if isinstance(starting, dict) and LATEST in _values(starting):
        raise OptionError("startingOffsets of a batch query may not hold -1 (latest)")


def _refuse_contradictions(parsed: ReadOptions) -> None:
    low, high = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(f"minOffsetsPerTrigger ({low}) is above maxOffsetsPerTrigger ({high})")
    letters = parsed.dead_letter_topic
    if letters is not None and (letters in parsed.assigned or parsed.wants(letters, 0)):
        raise OptionError(
            f"deadLetterTopic {letters!r} is read by this query: its dead letters would come back for ever"
        )


def lowered(given: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in small letters. Those of a table in SQL come twice, once behind `option.`."""
    options = {name.lower(): value for name, value in given.items()}
    return {name.removeprefix("option."): value for name, value in options.items()}


def check_names(options: Mapping[str, str], known: list[str]) -> None:
    """Refuse misspelt and contradicting names, warn about unknown ones; `options` has lower-case names."""
    for name, advice in REFUSED.items():
        if name in options:
            raise OptionError(f"{name} is not supported: {advice}")
    for name, instead in WITHOUT_EFFECT.items():
        if name.lower() in options:
            log.warning("%s has no effect in the format odradek: %s", name, instead)
    names = {name.lower(): name for name in known}
    ignored = set(map(str.lower, [*WITHOUT_EFFECT, *OF_SPARK]))
    for option in options:
        if option in names.keys() | ignored or option.startswith("kafka."):
            continue
        near = difflib.get_close_matches(option, names, n=1, cutoff=0.8)
        if near:
            raise OptionError(f"unknown option {option!r}: did you mean {names[near[0]]!r}?")
        log.warning("unknown option %r is ignored; the options are %s and kafka.*", option, ", ".join(known))


def kafka_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The client settings among the options, without their prefix; `bootstrap.servers` must be there."""
    settings = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
    if not settings.get("bootstrap.servers", "").strip():
        raise OptionError('set option("kafka.bootstrap.servers", "host:port,…")')
    return settings


def warn_of_unread_settings(settings: Mapping[str, str], known: list[str], who: str) -> None:
    """Say which `kafka.*` settings have no effect on `who`, each with the nearest one that has."""
    for name in settings:
        if name in known or f"kafka.{name}" in WITHOUT_EFFECT:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        hint = f"; did you mean kafka.{near[0]}?" if near else ""
        log.warning("kafka.%s has no effect on %s%s", name, who, hint)


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    """true or false, in any case."""
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text!r}")
    return text.strip().lower() == "true"


def lease_name(options: Mapping[str, str]) -> str | None:
    """The option gate, which needs the option groupId beside it. Raises OptionError."""
    name = options.get("gate") or None
    if name is not None:
        from odradek.client.output_lease.lease import is_lease_name

        if not is_lease_name(name):
            raise OptionError(f"gate is a name of letters, digits, '.', '_' and '-', not {name!r}")
        if not options.get("groupid"):
            raise OptionError("gate needs the option groupId: which of the groups that share the gate this query is")
    elif "standby" in options:
        raise OptionError("standby has an effect only with the option gate")
    return name


def _subject(options: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]]]:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(given) != 1:
        raise OptionError(f"give exactly one of subscribe, subscribePattern and assign, not {given or 'none'}")
    text = options[given[0].lower()].strip()
    if given[0] == "subscribe":
        return _topics(text), None, {}
    if given[0] == "assign":
        return (), None, _assigned(text)
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}") from None
    return (), text, {}


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not topics:
        raise OptionError("subscribe names no topic")
    return topics


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partition_ids in _json_object("assign", text).items():
        if not isinstance(partition_ids, list) or not all(map(_is_partition_id, partition_ids)):
            raise OptionError('assign is JSON such as {"topic": [0, 1]}')
        assigned[topic] = tuple(sorted(set(partition_ids)))
    if not any(assigned.values()):
        raise OptionError("assign names no partition")
    return assigned


def _is_partition_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INT32_MAX


def _position(options: Mapping[str, str], side: str, default: int) -> int | Offsets | Timestamps:
    """`startingTimestamp` goes before `startingOffsetsByTimestamp`, and that before `startingOffsets`, as in Spark."""
    timestamp = options.get(f"{side}timestamp")
    if timestamp is not None:
        return Timestamps(for_all_ms=_integer(f"{side}Timestamp", timestamp, 0))
    by_partition = options.get(f"{side}offsetsbytimestamp")
    if by_partition is not None:
        return Timestamps(by_partition_ms=parse_offsets(f"{side}OffsetsByTimestamp", by_partition, 0))
    text = options.get(f"{side}offsets")
    if text is None:
        return default
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    return parse_offsets(f"{side}Offsets", text, EARLIEST)


def parse_offsets(name: str, text: str, least: int) -> Offsets:
    """Read `{"topic": {"0": 23, "1": -2}}`; no number may be below `least`. Raises OptionError."""
    offsets: Offsets = {}
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, dict):
            raise OptionError(f'{name} is JSON such as {{"topic": {{"0": 23}}}}')
        offsets[topic] = {
            _integer(name, partition_id, 0, INT32_MAX): _integer(name, offset, least)
            for partition_id, offset in partitions.items()
        }
    return offsets


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name} is neither a word it knows nor JSON: {error}") from None
    if not isinstance(value, dict):
        raise OptionError(f"{name} must be a JSON object")
    return value


def _values(offsets: Offsets) -> list[int]:
    return [offset for partitions in offsets.values() for offset in partitions.values()]


def _integer(name: str, value: object, least: int, most: int = INT64_MAX) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise OptionError(f"{name}: {value!r} is not a whole number")
    try:
        number = int(value)
    except ValueError:
        raise OptionError(f"{name}: {value!r} is not a whole number") from None
    if number < least:
        raise OptionError(f"{name}: {number} is below {least}")
    if number > most:
        raise OptionError(f"{name}: {number} is above {most}")
    return number


def count(options: Mapping[str, str], name: str) -> int | None:
    """A whole number from 1 on; None where the option is not given."""
    text = options.get(name.lower())
    return None if text is None else _integer(name, text, 1)


def number_setting(settings: Mapping[str, str], name: str, default: int, least: int, most: int = INT32_MAX) -> int:
    """A whole number among `kafka.*`, from `least` to `most` inclusive. Raises OptionError."""
    text = settings.get(name, str(default))
    try:
        number = int(text)
    except ValueError:
        raise OptionError(f"kafka.{name}: {text!r} is not a whole number") from None
    if not least <= number <= most:
        raise OptionError(f"kafka.{name}: {number} is not between {least} and {most}")
    return number


def _duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    return _with_unit(options, name, _UNITS_MS, "ms") if name.lower() in options else default


def _size_bytes(options: Mapping[str, str], name: str) -> int | None:
    return _with_unit(options, name, _UNITS_BYTES, "") if name.lower() in options else None


def _with_unit(options: Mapping[str, str], name: str, units: Mapping[str, int], default_unit: str) -> int:
    text = options[name.lower()].strip().lower()
    match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", text)
    unit: str = (match.group(2) or default_unit) if match else "none"
    if match is None or unit not in units:
        raise OptionError(f"{name}: {text!r} is not a number with one of the units {', '.join(filter(None, units))}")
    return int(match.group(1)) * units[unit]
