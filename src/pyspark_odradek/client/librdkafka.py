"""Settings of Kafka's Java clients as a configuration of librdkafka: of a producer, and of any client of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.common.numbers import INT64_MAX
from pyspark_odradek.errors import OptionError
from pyspark_odradek.options import LEVELS, number_setting

# Settings of Kafka's Java producer that librdkafka does not have, with the counterpart if there is one.
JAVA_ONLY = {
    "default.api.timeout.ms": "kafka.delivery.timeout.ms is the time of a record",
    "max.block.ms": "a task waits for room in the queue until kafka.delivery.timeout.ms is over",
    "partitioner.ignore.keys": "kafka.partitioner says where keys go",
    "socket.connection.setup.timeout.max.ms": "kafka.socket.connection.setup.timeout.ms is the time of each attempt",
    "ssl.enabled.protocols": "librdkafka takes the versions that OpenSSL has",
} | dict.fromkeys(
    (
        "auto.include.jmx.reporter",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.two.phase.commit.enable",
    ),
    "librdkafka has no such setting",
)
# Settings with other names in librdkafka than in Kafka's Java producer; None: no counterpart.
JAVA_NAMES: dict[str, str | None] = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "buffer.memory": None,
    "isolation.level": None,
} | dict.fromkeys(JAVA_ONLY)
DEFAULTS: dict[str, Any] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": "true",
    "linger.ms": "10",
    "compression.type": "none",
    "message.max.bytes": "16777216",
    "queue.buffering.max.kbytes": "65536",
    "client.id": "odradek-spark",
    "delivery.report.only.error": True,
}


def producer_config(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings of Kafka's Java producer, or of librdkafka, as a configuration of librdkafka."""
    config = dict(DEFAULTS)
    if settings.get("acks", "all") not in ("all", "-1") and "enable.idempotence" not in settings:
        config["enable.idempotence"] = "false"
    return config | translated(settings)


def client_config(settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings for connections to a cluster, as a configuration of librdkafka."""
    reaching = ("bootstrap.servers", "client.id", "security.", "ssl.", "sasl.", "https.")
    return {"client.id": DEFAULTS["client.id"]} | translated(
        {name: value for name, value in settings.items() if name.startswith(reaching)}
    )


def translated(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings by the names that librdkafka has for them. Raises OptionError."""
    from odradek.client.sasl import SaslSettingError
    from odradek.security.client.settings import librdkafka_settings
    from odradek.security.tls.config import TlsSettingError

    named = {JAVA_NAMES.get(name, name): value for name, value in settings.items()}
    if "buffer.memory" in settings:
        memory_bytes = number_setting(settings, "buffer.memory", 1 << 25, 1024, INT64_MAX)
        named["queue.buffering.max.kbytes"] = str(memory_bytes >> 10)
    levels = {codec: named.pop(f"compression.{codec}.level", None) for codec in LEVELS}
    level = levels.get(settings.get("compression.type", "none").lower())
    if level is not None:
        named["compression.level"] = level
    try:
        return librdkafka_settings({name: value for name, value in named.items() if name is not None})
    except (SaslSettingError, TlsSettingError) as error:
        raise OptionError(f"kafka.{error}") from None
