"""WriteTxnMarkers: key 27, versions 1-2.

Behaviour: ends transactions in the partitions that this broker leads. Transaction coordinators send it, and people who
end a transaction that hangs. A marker that is there already is not written again.

Versions: 1 flexible; 2 the transaction's version: markers of version 2 end only what has an older epoch (KIP-890).
"""

from __future__ import annotations

from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import WriteTxnMarkersResponse
from odradek.server.context import RequestContext


async def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Write the markers; answered when they are committed."""
    return await context.broker.markers.write(request)
