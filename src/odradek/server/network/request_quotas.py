"""Quotas of clients: what each request uses, and how long its connection is muted for it (KIP-13, 124, 219).

A Produce is counted when it comes, so that what a client has pipelined behind it waits; a Fetch by what its answer has,
and the processor's time when the request is answered. The answer leaves at once and names the wait; until it is over
the connection begins no request, whatever the client does. Requests of brokers to each other are not counted.
Unlike Kafka, a Fetch that exceeds the quota is answered with its records, and the wait comes behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Timer, no_timer
from odradek.metadata.acls import AclOperation
from odradek.metadata.model import QuotaEntity
from odradek.protocol.apis import ApiKey
from odradek.protocol.records_field import RecordsChunks
from odradek.security.quota.config import QuotaConfig
from odradek.security.quota.entities import IP
from odradek.security.quota.ledger import Account, QuotaLedger
from odradek.server.authorization import CLUSTER_NEEDS

if TYPE_CHECKING:
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
_NS_OF_A_PERCENT = 10_000_000
_FIRST_FETCH_WITH_REPLICA_STATE = 15
_FIRST_ADD_PARTITIONS_OF_BROKERS = 4


class Charge:
    """Who pays for one request.

    Attributes:
        bytes_account: what a Fetch uses bytes of; None where there is no such quota.
        time_account: what the request uses the processor's time of.
        max_fetch_bytes: what a Fetch may have, so that none has to wait for longer than a window.
        throttle_ms: how long the client must wait for what is counted so far.
    """

    __slots__ = ("_since_ns", "_timer", "bytes_account", "max_fetch_bytes", "throttle_ms", "time_account")

    def __init__(self, timer: Timer) -> None:
        self.bytes_account: Account | None = None
        self.time_account: Account | None = None
        self.max_fetch_bytes = INT32_MAX
        self.throttle_ms = 0
        self._timer = timer
        self._since_ns = 0

    def work_began(self, since_ns: int | None = None) -> None:
        """The loop works for the request, since then or from now on."""
        self._since_ns = self._timer() if since_ns is None else since_ns

    def percent_seconds(self) -> float:
        """What it worked since it was last asked: a quota of 100 is all of a processor."""
        before_ns, self._since_ns = self._since_ns, self._timer()
        return (self._since_ns - before_ns) / _NS_OF_A_PERCENT


class RequestQuotas:
    """The quotas of a node's clients.

    Attributes:
        is_on: whether any is set: where none is, a request costs no more than to see that.
        is_timed: whether any counts the time of requests.
        current: those that hold.
    """

    def __init__(self, config: QuotaConfig, timer: Timer = no_timer) -> None:
        self.current: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self.timer = timer
        self._max_time_throttle_ms = config.window_s * 1000
        self.produce = QuotaLedger("producer_byte_rate", config.window_s)
        self.fetch = QuotaLedger("consumer_byte_rate", config.window_s)
        self.request = QuotaLedger("request_percentage", config.window_s)
        self.is_on = self.is_timed = False

    def change_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Go by these from now on."""
        self.current = quotas
        for ledger in (self.produce, self.fetch, self.request):
            ledger.change_quotas(quotas)
        self.is_timed = self.request.is_set
        self.is_on = any(kind != IP for entity in quotas for kind, _ in entity)

    def begin(self, context: RequestContext, request: Any, frame_bytes: int, began_ns: int) -> None:
        """A request is about to be handled; it was taken up at `began_ns` where requests are timed."""
        if _is_of_broker(context, request):
            return
        charge = context.charge = Charge(self.timer)
        if context.connection.listener.is_internal:
            return  # there a wait counts only where the controller says so
        user, client_id = context.principal.partition(":")[2], context.client_id
        now_ms = context.broker.clock.monotonic_ms()
        if self.is_timed:
            charge.time_account = self.request.account(user, client_id, now_ms)
            charge.work_began(began_ns or None)
        if context.api_key == ApiKey.PRODUCE:
            account = self.produce.account(user, client_id, now_ms)
            if account is not None:
                self._throttle(context, account.spend(frame_bytes, now_ms))
        elif context.api_key == ApiKey.FETCH:
            account = charge.bytes_account = self.fetch.account(user, client_id, now_ms)
            if account is not None:
                charge.max_fetch_bytes = min(INT32_MAX, max(1, int(account.limit * self.fetch.window_s)))

    def until_answered(self, context: RequestContext, outcome: Any) -> Any:
        """A request goes on: what takes the place of `outcome`, a future or a coroutine, whose work is counted too."""
        charge = context.charge
        assert charge is not None
        account = charge.time_account
        if account is None:
            return outcome
        account.use(charge.percent_seconds())
        return outcome if asyncio.isfuture(outcome) else _timed(outcome, context, account)

    def answered(self, context: RequestContext, response: Any) -> None:
        """A request is about to be answered; `response` says then how long the client is to wait."""
        charge = context.charge
        assert charge is not None
        if charge.bytes_account is not None:
            size_bytes = _records_bytes(response)
            if size_bytes:
                self._throttle(context, charge.bytes_account.spend(size_bytes, context.broker.clock.monotonic_ms()))
        if charge.time_account is not None:
            throttle_ms = charge.time_account.spend(charge.percent_seconds(), context.broker.clock.monotonic_ms())
            if throttle_ms:
                self._throttle(context, min(throttle_ms, self._max_time_throttle_ms))
        # The controller may have said so, too, of changes that it made.
        asked_ms = getattr(response, "throttle_time_ms", None)
        if asked_ms is not None:
            if asked_ms > charge.throttle_ms:
                self._throttle(context, asked_ms)
            response.throttle_time_ms = charge.throttle_ms

    def encoded(self, context: RequestContext) -> None:
        """An answer is queued: what that took is the client's as well."""
        charge = context.charge
        assert charge is not None
        if charge.time_account is not None:
            charge.time_account.use(charge.percent_seconds())

    def _throttle(self, context: RequestContext, throttle_ms: int) -> None:
        charge = context.charge
        if throttle_ms and charge is not None:
            charge.throttle_ms = max(charge.throttle_ms, throttle_ms)
            context.connection.mute(throttle_ms)


async def _timed(work: Coroutine[Any, Any, Any], context: RequestContext, account: Account) -> Any:
    """Run a handler that awaits, and count each of its steps."""
    return await _Steps(work, context, account)


class _Steps:
    def __init__(self, work: Coroutine[Any, Any, Any], context: RequestContext, account: Account) -> None:
        self._work = work
        self._context = context
        self._account = account

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                waited = self._counted(step)
            except StopIteration as end:
                return end.value
            try:
                yield waited
            except BaseException as error:
                step = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)

    def _counted(self, step: Callable[[], Any]) -> Any:
        charge = self._context.charge
        assert charge is not None
        charge.work_began()
        try:
            return step()
        finally:
            self._account.use(charge.percent_seconds())


def _is_of_broker(context: RequestContext, request: Any) -> bool:
    key = context.api_key
    if key == ApiKey.PRODUCE:
        return False
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
