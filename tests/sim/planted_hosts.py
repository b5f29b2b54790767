"""Bugs to plant in how replicas are spread over machines; the world of `hosts` finds them."""

from __future__ import annotations

from tests.sim.planted import Bug

HOST_BUGS = (
    Bug(
        "replicas are placed as if there were no machines",
        "controller.topics:Topics._usable_brokers",
        "host=broker.host",
        "host=None",
        "a machine that dies takes two of three copies along, and what only they had",
    ),
)
