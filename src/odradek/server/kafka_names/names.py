"""The names that a scrape has, by the setting `odradek.metrics.names`, and the families of Kafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from odradek.common.metrics import Family, Metrics
from odradek.server.kafka_names.readings import Scrape
from odradek.server.kafka_names.recent import Recent
from odradek.server.kafka_names.table import TABLE
from odradek.settings.options import config, option

if TYPE_CHECKING:
    from odradek.coordinator.group.lag import GroupLags
    from odradek.server.context import BrokerServices

OWN, KAFKA, BOTH = "odradek", "kafka", "both"


@config
class MetricNamesConfig:
    """The names under which metrics are exposed."""

    names: str = option(
        "odradek.metrics.names",
        default=OWN,
        doc="Names of the metrics that are served: odradek, kafka (those that the JMX exporter and kafka_exporter give "
        "Kafka, for dashboards that there are), or both.",
    )


class KafkaNames:
    """Reads Kafka's metrics from ours at each scrape."""

    def __init__(self, services: BrokerServices, lags: Callable[[], GroupLags]) -> None:
        """`lags`: of the groups that this node coordinates."""
        self._services = services
        self._lags = lags
        self._recent = Recent(services.clock.monotonic_ms())

    def families(self, ours: list[Family]) -> Iterator[Family]:
        """All rows of the table; a row without samples on this node is omitted."""
        self._recent.begin(self._services.clock.monotonic_ms())
        scrape = Scrape({family.name: family for family in ours}, self._services, self._lags(), self._recent)
        for row in TABLE:
            samples = tuple(row.reading.read(scrape))
            if samples:
                yield Family(row.family_name, row.kind, row.bean, samples)


async def shown_families(names: str, metrics: Metrics, kafka: KafkaNames) -> list[Family]:
    """The families of one scrape, collected in several turns of the loop."""
    ours: list[Family] = []
    for part in metrics.parts():
        ours += part
        await asyncio.sleep(0)
    if names == OWN:
        return ours
    shown = ours.copy() if names == BOTH else []
    for family in kafka.families(ours):
        shown.append(family)
        await asyncio.sleep(0)
    return shown
