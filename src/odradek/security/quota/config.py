"""The settings of clients' quotas."""

from __future__ import annotations

from odradek.settings.options import config, option


@config
class QuotaConfig:
    """The burst of client quotas."""

    window_count: int = option(
        "quota.window.num",
        default=11,
        unit="count",
        doc="A client that was idle may use its byte rates of all but one of so many windows at once; an address may"
        " make as many connections.",
    )
    window_s: int = option(
        "quota.window.size.seconds",
        default=1,
        unit="s",
        doc="Length of a window. A client that comes may use its quota of so many seconds at once; of"
        " request_percentage it saves up no more.",
    )

    @property
    def saved_s(self) -> int:
        """The burst, in seconds of the quota."""
        return max(1, self.window_count - 1) * self.window_s


@config
class MutationQuotaConfig:
    """The burst of controller mutation quotas: the product of both settings."""

    window_count: int = option(
        "controller.quota.window.num", default=11, unit="count", doc="Windows whose unused quota a client may use."
    )
    window_s: int = option(
        "controller.quota.window.size.seconds",
        default=1,
        unit="s",
        doc="Length of each window of controller.quota.window.num.",
    )
