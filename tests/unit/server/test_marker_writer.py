"""Markers of transactions for topics that are failed back, and for mirrors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.common.errors import ErrorCode
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.server.transactions.marker_writer import MarkerWriter


@pytest.mark.parametrize(("is_failing_back", "code"), [(True, ErrorCode.NOT_ENOUGH_REPLICAS), (False, ErrorCode.NONE)])
def test_markers_wait_for_the_end_of_a_failback(*, is_failing_back: bool, code: ErrorCode) -> None:
    """Should it be given up, its coordinator's decision counts: a mirror's transactions were ended by its source."""
    replicas = SimpleNamespace(
        mirrors=frozenset({"t"}),
        failing_back=frozenset({"t"} if is_failing_back else ()),
        find=lambda *_: SimpleNamespace(check_leader=lambda: None),
    )
    work = MarkerWriter(cast(Any, replicas), cast(Any, None), cast(Any, None), lambda: cast(Any, None))
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0
    )
    response = asyncio.run(work.write(WriteTxnMarkersRequest(markers=[marker])))
    (answer,) = response.markers[0].topics[0].partitions
    assert answer.error_code == code
