"""The settings of clients' quotas."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class QuotaConfig:
    """How long a client may save up what it has not used."""

    window_count: int = option(
        "quota.window.num",
        default=11,
        unit="count",
        doc="An address may make the connections of all but one of so many windows at once.",
    )
    window_s: int = option(
        "quota.window.size.seconds",
        default=1,
        unit="s",
        doc="A client that was idle may use its quota of so many seconds at once; also the length of a window.",
    )


@config
class MutationQuotaConfig:
    """How much a client may save up of what it may change per second: the product of both."""

    window_count: int = option(
        "controller.quota.window.num", default=11, unit="count", doc="Windows whose unused quota a client may use."
    )
    window_s: int = option(
        "controller.quota.window.size.seconds",
        default=1,
        unit="s",
        doc="Length of each window of controller.quota.window.num.",
    )
