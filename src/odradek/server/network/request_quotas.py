"""Quotas of clients: what each request uses, and how long its connection is muted for it (KIP-13, 124, 219).

A Produce is counted when it comes, so that what a client has pipelined behind it waits; a Fetch by what its answer has,
and the processor's time when the request is answered. The answer leaves at once and names the wait; until it is over
the connection begins no request, whatever the client does. Requests of brokers to each other are not counted.
Unlike Kafka, a Fetch that exceeds the quota is answered with its records, and the wait comes behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.common.numbers import INT32_MAX
from odradek.metadata.acls import AclOperation
from odradek.metadata.model import QuotaEntity
from odradek.protocol.apis import ApiKey
from odradek.protocol.records_field import RecordsChunks
from odradek.security.quota.config import QuotaConfig
from odradek.security.quota.ledger import Account, QuotaLedger
from odradek.server.authorization import CLUSTER_NEEDS

if TYPE_CHECKING:
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.server.context import RequestContext

# What brokers ask of each other, and logins: never counted.
_EXEMPT = frozenset(
    {
        *(key for key, operation in CLUSTER_NEEDS.items() if operation is AclOperation.CLUSTER_ACTION),
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
)
_FIRST_FETCH_WITH_REPLICA_STATE = 15
_FIRST_ADD_PARTITIONS_OF_BROKERS = 4


class Charge:
    """Who pays for one request.

    Attributes:
        account: what it uses bytes of; None where there is no such quota.
        max_fetch_bytes: what a Fetch may have, so that none has to wait for longer than a window.
        throttle_ms: how long the client must wait for what is counted so far.
    """

    __slots__ = ("account", "client_id", "max_fetch_bytes", "throttle_ms", "user")

    def __init__(self, user: str, client_id: str) -> None:
        self.user = user
        self.client_id = client_id
        self.account: Account | None = None
        self.max_fetch_bytes = INT32_MAX
        self.throttle_ms = 0


class RequestQuotas:
    """The quotas of a node's clients.

    Attributes:
        is_on: whether any is set: where none is, a request costs no more than to see that.
    """

    def __init__(self, config: QuotaConfig) -> None:
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self.produce = QuotaLedger("producer_byte_rate", config.window_s)
        self.fetch = QuotaLedger("consumer_byte_rate", config.window_s)
        self.ledgers = (self.produce, self.fetch)
        self.is_on = False

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Go by the quotas that hold now."""
        if image.client_quotas is not self._quotas:
            self._quotas = image.client_quotas
            for ledger in self.ledgers:
                ledger.change_quotas(self._quotas)
            self.is_on = any(ledger.is_set for ledger in self.ledgers)

    def begin(self, context: RequestContext, request: Any, frame_bytes: int) -> None:
        """A request is about to be handled."""
        listener = context.connection.listener
        if listener.scope != "broker" or listener.is_internal or _is_of_broker(context, request):
            return
        charge = context.charge = Charge(context.principal.partition(":")[2], context.client_id)
        now_ms = context.broker.clock.monotonic_ms()
        if context.api_key == ApiKey.PRODUCE:
            account = self.produce.account(charge.user, charge.client_id, now_ms)
            if account is not None:
                self._throttle(context, account.spend(frame_bytes, now_ms))
        elif context.api_key == ApiKey.FETCH:
            account = charge.account = self.fetch.account(charge.user, charge.client_id, now_ms)
            if account is not None:
                charge.max_fetch_bytes = min(INT32_MAX, max(1, int(account.limit * self.fetch.window_s)))

    def answered(self, context: RequestContext, response: Any) -> None:
        """A request is about to be answered; `response` says then how long the client is to wait."""
        charge = context.charge
        assert charge is not None
        if charge.account is not None:
            size_bytes = _records_bytes(response)
            if size_bytes:
                self._throttle(context, charge.account.spend(size_bytes, context.broker.clock.monotonic_ms()))
        if charge.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, charge.throttle_ms)

    def _throttle(self, context: RequestContext, throttle_ms: int) -> None:
        charge = context.charge
        if throttle_ms and charge is not None:
            charge.throttle_ms = max(charge.throttle_ms, throttle_ms)
            context.connection.mute(throttle_ms)


def _is_of_broker(context: RequestContext, request: Any) -> bool:
    key = context.api_key
    if key == ApiKey.FETCH:
        if context.api_version >= _FIRST_FETCH_WITH_REPLICA_STATE:
            return bool(request.replica_state.replica_id >= 0)
        return bool(request.replica_id >= 0)
    if key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
        return bool(request.replica_id >= 0)
    if key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return context.api_version >= _FIRST_ADD_PARTITIONS_OF_BROKERS
    return key in _EXEMPT


def _records_bytes(response: Any) -> int:
    return (
        0
        if response is None
        else sum(
            partition.records.size_bytes
            for topic in response.responses
            for partition in topic.partitions
            if isinstance(partition.records, RecordsChunks)
        )
    )
