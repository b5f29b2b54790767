"""All targets."""

from __future__ import annotations

from tests.fuzz import (
    targets_files,
    targets_logs,
    targets_produced,
    targets_protocol,
    targets_readers,
    targets_records,
    targets_settings,
)

TARGETS = (
    *targets_protocol.TARGETS,
    *targets_records.TARGETS,
    *targets_logs.TARGETS,
    *targets_produced.TARGETS,
    *targets_files.TARGETS,
    *targets_settings.TARGETS,
    *targets_readers.TARGETS,
)
