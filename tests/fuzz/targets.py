"""All targets, and the kinds of input that they belong to."""

from __future__ import annotations

from tests.fuzz import (
    targets_files,
    targets_logins,
    targets_logs,
    targets_permissions,
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
    *targets_logins.TARGETS,
    *targets_permissions.TARGETS,
    *targets_readers.TARGETS,
)

# Targets of the same kind of bytes share the time of that kind among all tests.
KINDS: dict[str, tuple[str, ...]] = {
    "frames, requests and responses": ("frames", "requests", "responses", "stored_records"),
    "record batches": ("compression", "walk", "batches", "produced", "spark_decode"),
    "logs that are recovered": ("damaged_log", "damaged_metadata", "dump_log"),
    "checkpoints": ("small_files",),
    "settings and logins": ("properties", "small_texts", "logins", "permissions", "quotas"),
}


def share_s(name: str, kind_s: float) -> float:
    """Seconds of one target, where each kind is given so many."""
    return next(kind_s / len(names) for names in KINDS.values() if name in names)
