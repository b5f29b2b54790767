"""The warnings of a node about certificates that expire soon, and their metrics."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.server.background.certificates import WARN_BEFORE, WARN_EVERY_MS, CertificateRenewal, certificate_families

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def context(name: str, ends_in: datetime.timedelta | None, *, renewed: bool = False) -> Any:
    """One listener's; `renewed` says what a look at its files finds."""
    return SimpleNamespace(name=name, not_after=None if ends_in is None else NOW + ends_in, renew=lambda: renewed)


class Looks:
    """A node that looks at its certificates when the test says so."""

    def __init__(self, *contexts: Any) -> None:
        self.now_ms = NOW_MS
        clock: Any = SimpleNamespace(now_ms=lambda: self.now_ms)
        self.renewal = CertificateRenewal(lambda: contexts, clock)

    def after(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.renewal.renew_or_warn()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The message and the listener of each warning since the last call."""
    found = [f"{each.getMessage()} {vars(each)['fields']['listener']}" for each in caplog.records]
    caplog.clear()
    return found


def test_a_warning_comes_once_a_day_from_a_month_before(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks(context("EXTERNAL", WARN_BEFORE), context("NONE", None))
    looks.after(0)
    assert warnings(caplog) == []
    looks.after(WARN_EVERY_MS)
    assert warnings(caplog) == ["a certificate expires soon: renew it EXTERNAL"]
    looks.after(WARN_EVERY_MS - 1)
    assert warnings(caplog) == []
    looks.after(1)
    assert len(warnings(caplog)) == 1


def test_one_that_has_expired_is_said_to_be_so(caplog: pytest.LogCaptureFixture) -> None:
    Looks(context("EXTERNAL", datetime.timedelta(0))).after(0)
    assert warnings(caplog) == ["a certificate has expired: renew it EXTERNAL"]


def test_a_renewed_one_that_ends_soon_is_warned_of_at_once(caplog: pytest.LogCaptureFixture) -> None:
    renewed = context("EXTERNAL", datetime.timedelta(days=1))
    looks = Looks(renewed)
    looks.after(0)
    looks.after(1000)
    assert len(warnings(caplog)) == 1
    renewed.renew = lambda: True
    looks.after(1000)
    assert len(warnings(caplog)) == 1


def test_metrics_say_when_each_certificate_expires() -> None:
    (family,) = certificate_families([context("EXTERNAL", datetime.timedelta(days=1)), context("NONE", None)])
    assert family.exposed_name == "odradek_certificate_expiry_seconds"
    assert [(each.value, each.labels) for each in family.samples] == [
        ((NOW + datetime.timedelta(days=1)).timestamp(), (("listener", "EXTERNAL"),))
    ]
