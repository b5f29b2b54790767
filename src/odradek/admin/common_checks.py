"""What is wrong with a configuration and with a cluster in the same way: too few voters, a certificate that ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from odradek.admin.finding import Finding, Severity

SAFE_COPIES = 3
SOON_DAYS, VERY_SOON_DAYS = 30, 7


def few_voters(count: int) -> Finding:
    """The quorum is too small to lose a node."""
    return Finding(
        Severity.BAD,
        "few-voters",
        f"the quorum has {count} voter{'s' if count > 1 else ''}",
        "without a majority no leader is elected and no topic changes; so few outlive no failure",
        "have three controllers, or five",
    )


def check_expiry(whose: str, not_after: datetime, now: datetime) -> Iterator[Finding]:
    """Whether a certificate ends soon."""
    days = (not_after - now).total_seconds() / 86_400
    if days > SOON_DAYS:
        return
    yield Finding(
        Severity.BAD if days < VERY_SOON_DAYS else Severity.WARNING,
        "certificate",
        f"the certificate of {whose} {f'expires in {days:.0f} days' if days > 0 else 'has expired'}",
        "clients and brokers end every handshake with it when it has expired",
        "put a renewed one into the same file: nodes take it without a restart",
    )
