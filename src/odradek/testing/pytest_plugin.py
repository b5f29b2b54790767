"""A fixture for users of pytest: `odradek_broker`, one embedded broker for the whole session.

The plugin is found by itself where the package is installed. Topics outlive a test, so give them names of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def odradek_broker() -> Iterator[EmbeddedBroker]:
    """A running broker; clients take `odradek_broker.bootstrap_servers`."""
    from odradek.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker
