"""Quotas of clients: what each request uses, and how long its connection is muted for it (KIP-13, 124, 219).

A Produce is counted when it comes, so that what a client has pipelined behind it waits; a Fetch by what its answer has,
and the processor's time when the request is answered. The answer leaves at once and names the wait; until it is over
the connection begins no request, whatever the client does. Requests of brokers to each other are not counted, nor are
logins.
The Fetch of a client that has used more than its quota is answered without records; as they were read already, one that
waits for request_percentage keeps them, unlike Kafka's: it would be charged for the next one again before it got any.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.common.numbers import INT32_MAX
from odradek.common.ports import Timer, no_timer
from odradek.metadata.acls import AclOperation
from odradek.metadata.model import QuotaEntity
from odradek.protocol.apis import ApiKey
from odradek.security.quota.config import QuotaConfig
from odradek.security.quota.entities import IP
from odradek.security.quota.ledger import Account, QuotaLedger
from odradek.server.authorization import CLUSTER_NEEDS
from odradek.server.pending_response import PendingResponse

if TYPE_CHECKING:
    from odradek.server.context import RequestContext
    from odradek.server.network.connection import Connection

# What brokers ask of each other: not counted, unless the client is denied what brokers may (`RequestContext`).
_EXEMPT = frozenset(
    {
        *(key for key, operation in CLUSTER_NEEDS.items() if operation is AclOperation.CLUSTER_ACTION),
        ApiKey.WRITE_TXN_MARKERS,
    }
)
_LOGIN = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
# Plain numbers: each request is compared with them.
_PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
_NS_OF_A_PERCENT = 10_000_000
# To pay for each request by itself would cost a fiftieth of it.
LEAST_PAID_NS = 1_000_000
_FIRST_ADD_PARTITIONS_OF_BROKERS = 4


class Payer:
    """Whose quotas the requests of a connection are counted by: found once, and again when one of these changes.

    Attributes:
        client_id: what the client calls itself.
        version: of the quotas, see `RequestQuotas`.
        produce, fetch, time: the accounts of the client; None where it has no such quota.
        max_fetch_bytes: what a Fetch may have, so that none has to wait for longer than a window.
    """

    __slots__ = ("client_id", "fetch", "max_fetch_bytes", "produce", "time", "version")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.version = -1
        self.produce: Account | None = None
        self.fetch: Account | None = None
        self.time: Account | None = None
        self.max_fetch_bytes = INT32_MAX

    def invalidate(self) -> None:
        """The client has logged in: another may be meant."""
        self.version = -1


class RequestQuotas:
    """The quotas of a node's clients.

    Time is read when the loop begins to work for a connection and when it turns to others, not for each request. Once
    LEAST_PAID_NS are unpaid, the first answer of the next turn pays for all that was worked since the last one that
    paid. A turn is short. While the client is in debt, as by a connection that ended or by a handler that awaited, each
    answer pays, that of a new connection too: who connects again has to wait as well.

    Attributes:
        is_on: whether any is set: where none is, a request costs no more than to see that.
        is_timed: whether any counts the time of requests.
        version: rises when a `Payer` that was found before may not be right any more.
        current: those that hold.
    """

    def __init__(self, config: QuotaConfig, timer: Timer = no_timer) -> None:
        self.current: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self.timer = timer
        self._max_time_throttle_ms = config.window_s * 1000
        self.produce = QuotaLedger("producer_byte_rate", config.window_s, saved_s=config.saved_s)
        self.fetch = QuotaLedger("consumer_byte_rate", config.window_s, saved_s=config.saved_s)
        self.request = QuotaLedger("request_percentage", config.window_s)
        self.is_on = self.is_timed = False
        self.version = 0
        self._forgotten_count = 0

    def change_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Go by these from now on."""
        self.current = quotas
        self.version += 1
        for ledger in (self.produce, self.fetch, self.request):
            ledger.change_quotas(quotas)
        self.is_timed = self.request.is_set
        self.is_on = any(kind != IP for entity in quotas for kind, _ in entity)

    def begin(self, context: RequestContext, payer: Payer, request: Any, frame_bytes: int) -> None:
        """Count a request that is about to be handled, other than a Fetch, for the client's quotas."""
        if context.api_key == _PRODUCE:
            account = payer.produce
            if account is not None:
                throttle_ms = account.pay(frame_bytes, context.connection.turn_ms)
                if throttle_ms:
                    context.throttle(throttle_ms)
        elif _is_exempt(context, request):
            context.payer = None

    def find_payer(self, connection: Connection, client_id: str) -> Payer:
        """Whose quotas the requests of a connection count for from now on; it is kept with the connection."""
        before = connection.payer
        if before is not None and before.time is None:
            connection.unpaid_ns, connection.turn_began_ns = 0, self.timer()  # there was no quota to count by
        payer = connection.payer = self._payer_of(connection, client_id)
        return payer

    def _payer_of(self, connection: Connection, client_id: str) -> Payer:
        payer = Payer(client_id)
        if not connection.listener.is_internal:  # there a wait counts only where the controller says so
            user, now_ms = connection.principal.partition(":")[2], connection.clock.monotonic_ms()
            payer.produce = self.produce.account(user, client_id, now_ms)
            payer.time = self.request.account(user, client_id, now_ms)
            account = payer.fetch = self.fetch.account(user, client_id, now_ms)
            if account is not None:
                payer.max_fetch_bytes = min(INT32_MAX, max(1, int(account.limit * self.fetch.window_s)))
        forgotten_count = sum(each.forgotten_count for each in (self.produce, self.fetch, self.request))
        if forgotten_count != self._forgotten_count:
            self._forgotten_count = forgotten_count
            self.version += 1
        payer.version = self.version
        return payer

    @contextmanager
    def working_for(self, connection: Connection) -> Iterator[None]:
        """The loop works for a connection outside of its turn."""
        connection.turn_ms = connection.clock.monotonic_ms()
        connection.turn_began_ns = self.timer()
        try:
            yield
        finally:
            connection.unpaid_ns += self.timer() - connection.turn_began_ns
            if connection.is_closing:
                self.connection_lost(connection)

    def until_answered(self, context: RequestContext, outcome: Any) -> Any:
        """A request goes on: what takes the place of `outcome`. The work of a coroutine is counted, too."""
        payer = context.payer
        if payer is None or payer.time is None or isinstance(outcome, PendingResponse):
            return outcome
        return _timed(outcome, self.timer, payer.time)

    def answered(self, context: RequestContext, payer: Payer, response: Any) -> None:
        """A request is about to be answered; `response` says then how long the client is to wait."""
        account = payer.time
        if account is not None and (context.connection.unpaid_ns >= LEAST_PAID_NS or account.tokens <= 0.0):
            self._pay_time(context, account)
        if context.throttle_ms or context.api_key > FETCH:
            # The controller may have said so, too, of changes that it made.
            asked_ms = getattr(response, "throttle_time_ms", None)
            if asked_ms is not None and asked_ms != context.throttle_ms:
                context.throttle(asked_ms)
                response.throttle_time_ms = context.throttle_ms

    def connection_lost(self, connection: Connection) -> None:
        """A connection has ended: what is unpaid counts for the client's others. Amid a turn, its end does that."""
        unpaid_ns, payer = connection.unpaid_ns, connection.payer
        if unpaid_ns <= 0:
            return
        connection.unpaid_ns = 0
        if payer is not None and payer.version != self.version:
            payer = connection.payer = self._payer_of(connection, payer.client_id)
        if payer is not None and payer.time is not None:
            payer.time.use(unpaid_ns / _NS_OF_A_PERCENT)

    def _pay_time(self, context: RequestContext, account: Account) -> None:
        connection, now_ns = context.connection, self.timer()
        used = (connection.unpaid_ns + now_ns - connection.turn_began_ns) / _NS_OF_A_PERCENT
        connection.unpaid_ns, connection.turn_began_ns = 0, now_ns
        throttle_ms = account.pay(used, connection.turn_ms)
        if throttle_ms:
            context.throttle(min(throttle_ms, self._max_time_throttle_ms))


async def _timed(work: Coroutine[Any, Any, Any], timer: Timer, account: Account) -> Any:
    """Run a handler that awaits, and count each of its steps."""
    return await _Steps(work, timer, account)


class _Steps:
    def __init__(self, work: Coroutine[Any, Any, Any], timer: Timer, account: Account) -> None:
        self._work = work
        self._timer = timer
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
        since_ns = self._timer()
        try:
            return step()
        finally:
            self._account.use((self._timer() - since_ns) / _NS_OF_A_PERCENT)


def _is_exempt(context: RequestContext, request: Any) -> bool:
    """Whether a request, neither Produce nor Fetch, is one of brokers to each other, or a login."""
    key = context.api_key
    if key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
        return bool(request.replica_id >= 0)
    if key == ApiKey.ADD_PARTITIONS_TO_TXN:
        return context.api_version >= _FIRST_ADD_PARTITIONS_OF_BROKERS
    return key in _EXEMPT or (key in _LOGIN and _logs_in(context))


def _logs_in(context: RequestContext) -> bool:
    """Whether a login is due: what it costs is no use of a quota. Out of place, its requests are as all others."""
    gate = context.connection.gate
    return gate is not None and not gate.is_open
