"""All targets."""

from __future__ import annotations

from tests.fuzz import targets_logs, targets_protocol, targets_records

TARGETS = (*targets_protocol.TARGETS, *targets_records.TARGETS, *targets_logs.TARGETS)
