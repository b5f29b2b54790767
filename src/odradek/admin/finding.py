"""Findings: problems, their effects, and how to fix them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

# The most names in a line; JSON has all.
NAMES_IN_A_LINE = 4


class Severity(IntEnum):
    """BAD loses records or stops clients; a WARNING may lead to that; a NOTE may be intended."""

    BAD = 0
    WARNING = 1
    NOTE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of some subjects.

    Attributes:
        check: a stable name, for programs.
        seen: the beginning of a sentence, which the subjects complete.
        subjects: topics, partitions, groups, brokers, directories or settings.
    """

    severity: Severity
    check: str
    seen: str
    why: str
    fix: str
    subjects: Sequence[str] = ()

    @property
    def line(self) -> str:
        """The problem as text, with the first few subjects."""
        return f"{self.seen}: {named(self.subjects)}" if self.subjects else self.seen

    def as_json(self) -> dict[str, Any]:
        return {
            "severity": self.severity.name.lower(),
            "check": self.check,
            "seen": self.line,
            "why": self.why,
            "fix": self.fix,
            "subjects": list(self.subjects),
        }


@dataclass
class Report:
    """All findings, and the checks that were skipped."""

    findings: list[Finding] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> None:
        self.findings += findings

    def skip(self, what: str, why: object) -> None:
        """Record the first reason for which a check was skipped."""
        self.skipped.setdefault(what, str(why))

    @property
    def worst_first(self) -> list[Finding]:
        return sorted(self.findings, key=lambda each: (each.severity, each.check))

    @property
    def is_bad(self) -> bool:
        return any(each.severity is Severity.BAD for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "bad": self.is_bad,
            "findings": [each.as_json() for each in self.worst_first],
            "skipped": self.skipped,
        }


def named(subjects: Sequence[str]) -> str:
    """The first few names, and the number of the others."""
    more = len(subjects) - NAMES_IN_A_LINE
    first = ", ".join(subjects[:NAMES_IN_A_LINE])
    return f"{first} and {more} more" if more > 0 else first


def counted(number: int, one: str, many: str) -> str:
    """`1 topic has`, `3 topics have`."""
    return f"{number} {one if number == 1 else many}"
