"""The settings of clients' quotas."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class QuotaConfig:
    """How long a client may save up what it has not used."""

    window_s: int = option(
        "quota.window.size.seconds",
        default=1,
        unit="s",
        doc="A client that was idle may use its quota of so many seconds at once.",
    )
