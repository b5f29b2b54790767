"""Checks that configurations and running clusters share: too few voters, expiring certificates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from odradek.admin.finding import Finding, Severity

SAFE_COPIES = 3
SOON_DAYS, VERY_SOON_DAYS = 30, 7


def few_voters(count: int) -> Finding:
    """The quorum is too small to tolerate a failure."""
    return Finding(
        Severity.BAD,
        "few-voters",
        f"the quorum has {count} voter{'s' if count > 1 else ''}",
        "without a majority no leader is elected and no topic changes; so few tolerate no failure",
        "have three controllers, or five",
    )


def check_expiry(whose: str, not_after: datetime, now: datetime) -> Iterator[Finding]:
    """Whether a certificate expires soon."""
    days = (not_after - now).total_seconds() / 86_400
    if days > SOON_DAYS:
        return
    yield Finding(
        Severity.BAD if days < VERY_SOON_DAYS else Severity.WARNING,
        "certificate",
        f"the certificate of {whose} {f'expires in {days:.0f} days' if days > 0 else 'has expired'}",
        "clients and brokers refuse an expired certificate",
        "put a renewed one into the same file: nodes load it without a restart",
    )
