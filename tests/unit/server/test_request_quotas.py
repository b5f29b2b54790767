"""When the time that the loop works for a connection is paid by its client's quota."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.protocol.apis import ApiKey
from odradek.security.quota.config import QuotaConfig
from odradek.server.network.request_quotas import LEAST_PAID_NS, RequestQuotas

CLIENT = ("User:alice", "app")
NS_OF_A_PERCENT = 10_000_000


class World:
    """One client, whose time is the test's."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_000
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ns // 1_000_000)
        self.quotas = RequestQuotas(QuotaConfig(), lambda: self.now_ns)
        self.quotas.change_quotas({(("client-id", None),): {"request_percentage": 50.0}})
        listener = SimpleNamespace(is_internal=False)
        self.broker = SimpleNamespace(clock=clock)
        self.connection: Any = SimpleNamespace(
            clock=clock, listener=listener, payer=None, principal=CLIENT[0], gate=None,
            owes_time=False, unpaid_since_ns=0, turn_ms=0,
        )  # fmt: skip

    def turn(self, *works_ns: int) -> None:
        """A turn of the loop in which requests take so long each, before they are answered."""
        with self.quotas.working_for(self.connection):
            for work_ns in works_ns:
                context: Any = SimpleNamespace(
                    api_key=int(ApiKey.METADATA), connection=self.connection, broker=self.broker,
                    client_id=CLIENT[1], throttle_ms=0, payer=None,
                )  # fmt: skip
                self.quotas.begin(context, None, 100)
                self.now_ns += work_ns
                self.quotas.answered(context, SimpleNamespace(throttle_time_ms=0))

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
    world.quotas.left(world.connection)
    assert world.paid_ns == LEAST_PAID_NS // 2 + 7
