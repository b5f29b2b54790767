"""The client's quota pays for the time that the event loop works for a connection: when, and by whom."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from odradek.metadata.model import QuotaEntity
from odradek.protocol.apis import ApiKey
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.security.quota.config import QuotaConfig
from odradek.server.context import RequestContext
from odradek.server.network.request_quotas import LEAST_PAID_NS, RequestQuotas
from odradek.server.network.requests import Requests

CLIENT = ("User:alice", "app")
QUOTAS: dict[QuotaEntity, dict[str, float]] = {(("client-id", None),): {"request_percentage": 50.0}}
NS_OF_A_PERCENT = 10_000_000
NS_OF_A_MS = 1_000_000


class World:
    """One client, whose time is the test's."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_000
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ns // 1_000_000)
        self.quotas = RequestQuotas(QuotaConfig(), lambda: self.now_ns)
        self.quotas.change_quotas(QUOTAS)
        self._listener = SimpleNamespace(is_internal=False)
        self.broker: Any = SimpleNamespace(clock=clock)
        self.waits_ms: list[int] = []
        self.connect()

    def connect(self) -> Any:
        """The client makes a connection, which has the turns that follow."""
        self.connection: Any = SimpleNamespace(
            clock=self.broker.clock, listener=self._listener, payer=None, principal=CLIENT[0], gate=None,
            turn_began_ns=0, unpaid_ns=0, turn_ms=0, is_closing=False, mute=self.waits_ms.append,
            send=lambda slot, chunks, context: None,
        )  # fmt: skip
        return self.connection

    def leave(self) -> None:
        self.connection.is_closing = True
        self.quotas.connection_lost(self.connection)

    def pass_time(self, passed_ms: int) -> None:
        self.now_ns += passed_ms * NS_OF_A_MS

    def turn(self, *works_ns: int, leaves: bool = False) -> int:
        """A turn of the loop in which requests take so long each, before they are answered.

        Args:
            leaves: whether the client leaves at its end.
        Returns:
            How long the client must wait, ms, by the last answer.
        """
        response = MetadataResponse()

        def handle(work_ns: int, *_: object) -> MetadataResponse:
            self.now_ns += work_ns
            response.throttle_time_ms = 0
            return response

        dispatcher: Any = SimpleNamespace(quotas=self.quotas, is_timed=False, silent_scopes=())
        requests = Requests(self.connection, dispatcher)
        with self.quotas.working_for(self.connection):
            for work_ns in works_ns:
                context = RequestContext(self.broker, self.connection, ApiKey.METADATA, 12, 1, CLIENT[1])
                route: Any = SimpleNamespace(request_count=0, request_bytes=0, handle=partial(handle, work_ns))
                requests.handle(context, route, None, 100)
            if leaves:
                self.leave()
        return response.throttle_time_ms

    @property
    def paid_ns(self) -> float:
        (account,) = [each for _, each in self.quotas.request.accounts()]
        return round(account.amount * NS_OF_A_PERCENT)


def test_small_work_is_paid_together() -> None:
    world, small = World(), LEAST_PAID_NS // 4
    for turns in range(1, 5):
        world.turn(small)
        assert world.paid_ns == 0, turns
    world.turn(small, small)
    assert world.paid_ns == 5 * small, "the first answer pays for all before it, once a turn"
    world.turn(small)
    assert world.paid_ns == 5 * small


def test_long_work_is_paid_by_the_next_turn() -> None:
    world = World()
    world.turn(3 * LEAST_PAID_NS)
    world.turn(1)
    assert world.paid_ns == 3 * LEAST_PAID_NS + 1


def test_a_connection_that_ends_pays_what_it_owes() -> None:
    world = World()
    world.turn(LEAST_PAID_NS // 2)
    world.turn(7)
    world.leave()
    assert world.paid_ns == LEAST_PAID_NS // 2 + 7


def test_a_client_that_connects_again_waits_for_what_it_used() -> None:
    """The quota is half of the time, and its bucket holds half a second."""
    world, work_ms = World(), 500
    assert world.turn(work_ms * NS_OF_A_MS) == 0
    world.leave()
    for _ in range(3):
        world.connect()
        began_ms = world.broker.clock.monotonic_ms()
        wait_ms = world.turn(work_ms * NS_OF_A_MS)
        assert world.waits_ms[-1] == wait_ms > 0
        world.leave()
        world.pass_time(wait_ms)
        passed_ms = world.broker.clock.monotonic_ms() - began_ms
        assert passed_ms >= 2 * work_ms, "each second on a connection of its own, half of it work"
    assert world.paid_ns == 4 * work_ms * NS_OF_A_MS


def test_all_connections_of_a_client_wait_for_its_debt() -> None:
    world = World()
    first, second = world.connection, world.connect()
    world.turn(600 * NS_OF_A_MS)
    world.leave()
    world.connection = first
    first_wait_ms = world.turn(1)
    world.connect()
    assert 0 < first_wait_ms <= world.turn(1), "no less than those that wait already"
    assert second.is_closing
    world.pass_time(first_wait_ms + 1000)
    assert world.turn(1) == 0, "the debt is paid"
    assert world.turn(1) == 0


def test_answers_of_a_connection_that_waits_prolong_its_wait() -> None:
    """The answers are those of requests that were under way when the wait began."""
    world = World()
    world.turn(600 * NS_OF_A_MS)
    wait_ms = world.turn(1)
    assert wait_ms > 0
    assert world.turn(40 * NS_OF_A_MS, 1) > wait_ms


def test_work_for_a_closed_connection_is_counted() -> None:
    world = World()
    world.turn(7)
    world.leave()
    world.leave()
    assert world.paid_ns == 7, "once"
    world.turn(8)
    assert world.paid_ns == 7 + 8
    world.connect()
    world.turn(9, leaves=True)
    assert world.paid_ns == 7 + 8 + 9, "it ended amid the work"


def test_uncounted_work_is_recorded_in_the_present_account() -> None:
    """The ledger may have closed the one that the connection had, and opened another for the client's others."""
    world = World()
    world.turn(7)
    for off_or_on in ({}, QUOTAS):
        world.quotas.change_quotas(off_or_on)
    left = world.connection
    world.connect()
    world.turn(0)
    world.connection = left
    world.leave()
    assert world.paid_ns == 7


def test_work_before_the_client_had_a_quota_is_free() -> None:
    world = World()
    world.quotas.change_quotas({(("client-id", "another"),): {"request_percentage": 50.0}})
    for _ in range(10):
        world.turn(300 * NS_OF_A_MS)
    world.quotas.change_quotas(QUOTAS)
    assert world.turn(7, 8) == 0
    world.leave()
    assert world.paid_ns == 7 + 8
