"""A change of a cluster that is shown before it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from odradek.client.cluster import Cluster
from odradek.common.errors import OdradekError


class PlanError(OdradekError):
    """The requested change is invalid; the text is one line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that is not made yet.

    Attributes:
        lines: the effects, as text without secrets.
        work: makes the change.
        typed: the text that a user must type first, for changes that cannot be undone; "" for none.
    """

    title: str
    lines: tuple[str, ...]
    work: Callable[[Cluster], Awaitable[Any]]
    typed: str = ""
