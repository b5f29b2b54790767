"""Checks a node's properties file: settings that risk records, and settings without effect."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import cast

from odradek.admin.common_checks import SAFE_COPIES, check_expiry, few_voters
from odradek.admin.finding import Finding, Severity
from odradek.settings.broker import BrokerSettings

MIN_ISR = "min.insync.replicas"
_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


def check_settings(settings: BrokerSettings, now: datetime) -> Iterator[Finding]:
    """The findings for a configuration; `now` is compared with the expiry of certificates."""
    if "broker" in settings.roles:
        yield from _check_copies(settings)
    yield from _check_quorum(settings)
    unknown = [line for line in settings.warnings if line.startswith("unknown setting ")]
    ignored = [line for line in settings.warnings if not line.startswith("unknown setting ")]
    for lines, check, seen in (
        (unknown, "unknown-setting", "settings are unknown"),
        (ignored, "ignored-setting", "settings have no effect"),
    ):
        if lines:
            yield Finding(
                Severity.WARNING,
                check,
                seen,
                "the file asks for something that does not happen",
                "correct their names, or remove them",
                lines,
            )
    yield from _check_certificates(settings, now)


def _check_copies(settings: BrokerSettings) -> Iterator[Finding]:
    single = [f"{key}={settings[key]}" for key in _FACTORS if settings[key] == 1]
    if single:
        yield Finding(
            Severity.BAD,
            "replication-factor",
            "topics get one replica",
            "records are lost with the broker's disk, and cannot be read while the broker is down",
            f"set them to {SAFE_COPIES}",
            single,
        )
    copies = cast(int, settings["default.replication.factor"])
    if copies > 1 and settings[MIN_ISR] == 1:
        yield Finding(
            Severity.BAD,
            "min-insync-replicas",
            f"{MIN_ISR} is 1 for topics of {copies} replicas",
            "a record that only one broker has is acknowledged with acks=all, and lost with that broker",
            f"set {MIN_ISR}={copies - 1}"
            if copies >= SAFE_COPIES
            else f"set default.replication.factor={SAFE_COPIES} and {MIN_ISR}=2",
        )
    if settings["unclean.leader.election.enable"]:
        yield Finding(
            Severity.BAD,
            "unclean-election",
            "unclean.leader.election.enable is true",
            "a replica that lacks acknowledged records may lead, and they are lost",
            "set it to false; `odradek partitions elect --unclean` does it for one partition where it must be",
        )


def _check_quorum(settings: BrokerSettings) -> Iterator[Finding]:
    voters = cast("list[str]", settings["controller.quorum.voters"] or [])
    if 0 < len(voters) < SAFE_COPIES:
        yield few_voters(len(voters))


def _check_certificates(settings: BrokerSettings, now: datetime) -> Iterator[Finding]:
    for listener in settings.listeners:
        if not listener.security_protocol.endswith("SSL"):
            continue
        from odradek.security.tls.config import TlsConfig, TlsSettingError
        from odradek.security.tls.contexts import server_context

        try:
            not_after = server_context(settings.of_listener(listener.name).build(TlsConfig), Path.read_bytes).not_after
        except TlsSettingError as error:
            yield Finding(
                Severity.BAD,
                "certificate",
                f"listener {listener.name} has no certificate that can be used: {error}",
                "the node does not start",
                "see docs/security.md",
            )
            continue
        if not_after is not None:
            yield from check_expiry(f"listener {listener.name}", not_after, now)
