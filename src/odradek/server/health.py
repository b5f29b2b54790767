"""The state of a node for probes: live, ready, drained; see docs/health.md.

The results come from the node's own image of the metadata: a probe sends no request to other nodes, so that a slow node
does not affect the state of others. Results over all partitions are cached for each image.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.metadata.model import PartitionImage, ResourceType
from odradek.server.network.http_pages import JSON, OK, UNAVAILABLE, Page, Pages
from odradek.settings.broker import DRAIN_KEY

if TYPE_CHECKING:
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.model import BrokerImage

# A partition that is not in sync is named; of thousands, the first.
NAMED_PARTITIONS = 20


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `why` and `facts` are the reasons if it is not met."""

    name: str
    ok: bool
    why: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The condition as an object of JSON."""
        return {"ok": True} if self.ok else {"ok": False, "why": self.why, **self.facts}


def partitions_of(image: MetadataImage) -> Iterator[tuple[str, int, PartitionImage]]:
    """(topic, number, partition) of all partitions of a cluster."""
    for topic in image.topics_by_name.values():
        for number, partition in topic.partitions.items():
            yield topic.name, number, partition


def fallen_out(image: MetadataImage, node_id: int) -> list[str]:
    """The partitions of which a broker is a replica, but not in the in-sync set.

    Replicas that are being added or removed do not count, nor do partitions without a leader, which no replica can
    join.
    """
    return [
        f"{topic}-{number}"
        for topic, number, each in partitions_of(image)
        if node_id in each.replicas
        and node_id not in each.isr
        and each.has_leader
        and node_id not in (*each.adding_replicas, *each.removing_replicas)
    ]


def is_draining(image: MetadataImage, node_id: int) -> bool:
    """Whether a broker hands over its work, be it by `odradek drain` or because it stops."""
    own = image.brokers.get(node_id)
    requested = DRAIN_KEY in image.config(ResourceType.BROKER, str(node_id))
    return requested or (own is not None and own.in_controlled_shutdown)


def led_partitions(image: MetadataImage, node_id: int) -> tuple[int, int]:
    """(how many partitions a broker leads, how many of them another one could lead)."""
    able = {each for each, broker in image.brokers.items() if broker.active and not is_draining(image, each)}
    able.discard(node_id)
    led = [each for _, _, each in partitions_of(image) if each.leader == node_id]
    return len(led), sum(not able.isdisjoint(each.isr) for each in led)


class Health:
    """The answers of one node."""

    def __init__(
        self,
        node_id: int,
        roles: frozenset[str],
        *,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        metadata_lag: Callable[[], int | None],
        serves: Callable[[], bool],
        failure: Callable[[], BaseException | None],
    ) -> None:
        """
        Args:
            broker_epoch: of this process; -1 before it is registered.
            metadata_lag: committed metadata records that this node lacks; None where no quorum leader answers it.
            serves: whether clients' requests are answered.
            failure: the fatal error, if there is one.
        """
        self._node_id = node_id
        self._roles = roles
        self._image = image
        self._broker_epoch = broker_epoch
        self._metadata_lag = metadata_lag
        self._serves = serves
        self._failure = failure
        self._seen: MetadataImage | None = None
        self._fallen_out: list[str] = []
        self._led = (0, 0)

    def pages(self) -> Pages:
        """The answers by path."""
        return {b"/livez": self.live, b"/readyz": self.ready, b"/drained": self.drained}

    def live(self) -> Page:
        """Whether the process should keep running: the event loop responds, and no part has failed permanently."""
        failure = self._failure()
        if failure is None:
            return _page(True, {"live": True})
        return _page(False, {"live": False, "why": str(failure)})

    def ready(self) -> Page:
        """Whether all is as it should be, so that the next node may be stopped."""
        conditions = self.conditions()
        failing = [each.name for each in conditions if not each.ok]
        shown = {each.name: each.as_json() for each in conditions}
        return _page(not failing, {"ready": not failing, "failing": failing, "conditions": shown})

    def drained(self) -> Page:
        """Whether this broker hands over its work and leads nothing that another one could lead."""
        image = self._image()
        self._update(image)
        leads, movable = self._led
        is_broker = "broker" in self._roles
        draining = is_broker and is_draining(image, self._node_id)
        drained = not is_broker or (draining and not movable)
        return _page(drained, {"drained": drained, "draining": draining, "leads": leads, "movable": movable})

    def conditions(self) -> list[Condition]:
        """The conditions of readiness, in the order in which a start meets them."""
        image = self._image()
        caught_up = self._caught_up()
        if "broker" not in self._roles:
            return [caught_up, *self._controller_conditions(image)]
        own = image.brokers.get(self._node_id)
        self._update(image)
        return [
            self._registered(own),
            Condition("unfenced", own is not None and not own.fenced, "the controller keeps this broker fenced"),
            caught_up,
            Condition(
                "in_sync",
                not self._fallen_out,
                f"{len(self._fallen_out)} replicas here are not in sync",
                {"count": len(self._fallen_out), "partitions": self._fallen_out[:NAMED_PARTITIONS]},
            ),
            Condition(
                "serving",
                self._serves() and own is not None and not own.in_controlled_shutdown,
                "clients are not served: this broker starts or stops",
            ),
        ]

    def _controller_conditions(self, image: MetadataImage) -> Iterator[Condition]:
        yield Condition("registered", self._node_id in image.controllers, "the cluster knows no controller of this id")

    def _registered(self, own: BrokerImage | None) -> Condition:
        ok = own is not None and own.broker_epoch == self._broker_epoch()
        return Condition("registered", ok, "this process has not registered yet")

    def _caught_up(self) -> Condition:
        lag = self._metadata_lag()
        why = "no leader of the quorum answers" if lag is None else "committed metadata is not here yet"
        return Condition("caught_up", lag == 0, why, {} if lag is None else {"lag_records": lag})

    def _update(self, image: MetadataImage) -> None:
        if image is not self._seen:
            self._seen = image
            self._fallen_out = fallen_out(image, self._node_id)
            self._led = led_partitions(image, self._node_id)


def _page(good: bool, answer: dict[str, Any]) -> Page:
    return Page(json.dumps(answer).encode() + b"\n", OK if good else UNAVAILABLE, JSON)
