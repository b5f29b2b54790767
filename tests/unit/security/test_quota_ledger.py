"""The ledger counts the usage of quotas, and computes how long a client over its quota waits."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.addresses import plain_address
from odradek.common.token_bucket import TokenBucket
from odradek.security.quota.arrivals import MAX_WAIT_MS, Arrivals
from odradek.security.quota.ledger import MAX_ACCOUNTS, WAIT_FOR_NOTHING_MS, Account, QuotaLedger

MIB = 1024 * 1024
RATE = "producer_byte_rate"


def ledger(limit: float, *entities: tuple[str, str | None]) -> QuotaLedger:
    made = QuotaLedger(RATE, 1)
    made.change_quotas({(entity,): {RATE: limit} for entity in entities})
    return made


def spend(of: QuotaLedger, amount: float, now_ms: int, user: str = "alice", client_id: str = "app") -> int:
    account = of.account(user, client_id, now_ms)
    assert account is not None
    return account.pay(amount, now_ms)


@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_waits_as_it_must_gets_its_quota(seed: int) -> None:
    random = Random(seed)
    quota, now_ms, sent = ledger(MIB, ("user", "alice")), 0, 0
    while now_ms < 30_000:
        size = random.randrange(1, 1024 * 1024)
        sent += size
        now_ms += spend(quota, size, now_ms) + random.randrange(3)
    assert 0.95 < sent / MIB / (now_ms / 1000) < 1.05


def test_clients_of_one_quota_wait_for_what_the_others_used() -> None:
    quota = ledger(100, ("user", "alice"))
    assert spend(quota, 99, 0, client_id="one") == 0
    assert spend(quota, 101, 0, client_id="two") == 1001
    assert quota.account("bob", "one", 0) is None
    each = ledger(100, ("client-id", None))
    assert spend(each, 200, 0, client_id="one") == 1001
    assert spend(each, 99, 0, client_id="two") == 0


def test_a_quota_of_zero_waits_as_long_as_kafkas_windows() -> None:
    assert spend(ledger(0, ("user", None)), 1, 0) == WAIT_FOR_NOTHING_MS


def test_a_changed_quota_keeps_the_recorded_usage() -> None:
    quota = ledger(100, ("user", "alice"))
    assert spend(quota, 1100, 0) == 10_001
    quota.change_quotas({(("user", "alice"),): {RATE: 1000.0}})
    account = quota.account("alice", "app", 0)
    assert account is not None and (account.limit, account.amount, account.throttle_count) == (1000, 1100, 1)
    assert spend(quota, 0, 0) == 1001
    quota.change_quotas({(("user", "alice"),): {"consumer_byte_rate": 1.0}})
    assert (quota.is_set, quota.account("alice", "app", 0), list(quota.accounts())) == (False, None, [])


def test_endless_client_ids_do_not_fill_the_memory() -> None:
    quota = ledger(100, ("client-id", None))
    assert spend(quota, 10_000, 0, client_id="slow") > 0
    for number in range(2 * MAX_ACCOUNTS):
        spend(quota, 1, number, client_id=str(number))
    assert len(list(quota.accounts())) <= MAX_ACCOUNTS
    assert quota.forgotten_count > 0, "those who hold an account must ask for it again"
    assert spend(quota, 1, 2 * MAX_ACCOUNTS, client_id="slow") > 0, "who owes something is not forgotten first"


def test_connections_of_an_address_come_no_faster_than_its_quota() -> None:
    arrivals = Arrivals(10)
    assert not arrivals.is_on
    rate = "connection_creation_rate"
    arrivals.change_quotas(
        {(("ip", None),): {rate: 1.0}, (("ip", "0:0::1"),): {rate: 0.0}, (("user", "a"),): {RATE: 1.0}}
    )
    assert arrivals.is_on
    assert [arrivals.wait_ms("10.0.0.1", 0) for _ in range(11)] == [0] * 10 + [1]
    assert arrivals.wait_ms("10.0.0.2", 0) == 0
    assert arrivals.wait_ms("::1", 0) == MAX_WAIT_MS, "named in another form"
    # A connection that came too early is not counted.
    assert [arrivals.wait_ms("10.0.0.1", 1000) for _ in range(2)] == [0, 1]
    arrivals.change_quotas({(("user", "a"),): {RATE: 1.0}})
    assert (arrivals.is_on, arrivals.wait_ms("10.0.0.1", 1000)) == (False, 0)


def test_addresses_have_one_form() -> None:
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("host-1") == "host-1"


@given(steps=st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 1, 250, 500])), min_size=1, max_size=30))
def test_requests_of_one_time_pay_as_a_bucket_does(steps: list[tuple[int, int]]) -> None:
    account, bucket, now_ms = Account(1000, burst_s=1, start_s=1), TokenBucket(1000, burst_s=1), 5
    for passed_ms, amount in steps:
        now_ms += passed_ms
        assert (account.pay(amount, now_ms) > 0) == bucket.refill_and_debit(amount, now_ms)
        assert account.ready_in_ms(now_ms) == bucket.ready_in_ms(now_ms)
    assert account.amount == sum(amount for _, amount in steps)


@given(steps=st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([0, 1, 250, 1500]), st.sampled_from([500, 1000]))))
def test_a_fetch_waits_while_its_account_owes(steps: list[tuple[int, int, int]]) -> None:
    """The steps change the rate, too, and go back in time."""
    account, bucket, now_ms = Account(1000, burst_s=1, start_s=1), TokenBucket(1000, burst_s=1), 100
    for passed_ms, amount, rate in steps:
        now_ms += passed_ms
        for each in (account, bucket):
            each.change_rate(rate, now_ms)
        must_wait = bucket.is_exhausted(now_ms)
        if not must_wait:
            bucket.debit(amount)
        assert (account.pay_unless_owing(amount, now_ms) > 0) == must_wait
        assert account.tokens == bucket.tokens
