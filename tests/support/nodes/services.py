"""The services of a node of which a test has some."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from uuid import UUID

from odradek.server.context import BrokerServices
from odradek.server.telemetry.store import ClientTelemetry, TelemetryConfig


def services_with(**parts: Any) -> BrokerServices:
    """BrokerServices with these parts, and no client telemetry, which ApiVersions needs; all others are None."""
    others: dict[str, Any] = dict.fromkeys(each.name for each in fields(BrokerServices))
    others["telemetry"] = ClientTelemetry(TelemetryConfig(), lambda: UUID(int=1), is_on=False)
    return BrokerServices(**(others | parts))
