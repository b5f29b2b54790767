"""A change of a cluster that is shown before it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from odradek.client.cluster import Cluster
from odradek.common.errors import OdradekError


class PlanError(OdradekError):
    """What was asked for cannot be done; one line for a person."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that is not made yet.

    Attributes:
        lines: what will be, in words; no line has a secret.
        work: makes it.
        typed: what a user has to write before, for what cannot be undone; "" is nothing.
    """

    title: str
    lines: tuple[str, ...]
    work: Callable[[Cluster], Awaitable[Any]]
    typed: str = ""
