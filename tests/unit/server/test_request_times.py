"""The phases of requests, as their times make them."""

from __future__ import annotations

from collections import Counter

from odradek.common.metrics import Histogram
from odradek.server.network.request_times import RequestTimes, RouteTimes, request_time_families

API = (("api", "Produce"),)


def phases(times: RouteTimes) -> dict[str, Histogram]:
    family = next(iter(request_time_families([(times, API)])))
    return {dict(each.labels)["phase"]: each for each in family.histograms}


def sent(
    times: RouteTimes, *, waited_ns: int = 0, local_ns: int, remote_ns: int = 0, send_ns: int, throttle_ms: int = 0
) -> None:
    began_ns = 1_000_000
    request = RequestTimes(times, began_ns - waited_ns if waited_ns else 0, began_ns, 100)
    request.ready_ns = began_ns + local_ns + remote_ns
    request.decided_ns = began_ns + local_ns if remote_ns else 0
    request.throttle_ms = throttle_ms
    request.response_bytes = 1000
    request.sent(request.ready_ns + send_ns)


def test_phases_add_up_to_the_total() -> None:
    times = RouteTimes()
    sent(times, local_ns=40, send_ns=2)
    sent(times, waited_ns=500, local_ns=60, remote_ns=7000, send_ns=3, throttle_ms=2)
    found = phases(times)
    sums_ns = {name: round(each.sum * 1e9) for name, each in found.items()}
    assert sums_ns == {"queue": 500, "local": 100, "remote": 7000, "throttle": 2_000_000, "send": 5, "total": 7605}
    assert {each.buckets[-1] for each in found.values()} == {("+Inf", 2)}, "who did not wait, waited for 0"


def test_sizes_are_kept_with_the_times() -> None:
    times = RouteTimes()
    sent(times, local_ns=40, send_ns=2)
    _, requests, responses = request_time_families([(times, API), (RouteTimes(), (("api", "Fetch"),))])
    assert [(each.sum, each.labels) for each in requests.histograms] == [(100, API)]
    assert [(each.sum, each.labels) for each in responses.histograms] == [(1000, API)]


def timed_of(times: RouteTimes, requests: int) -> list[int]:
    """The numbers of the requests that are timed, as their connection counts them."""
    timed = []
    for number in range(requests):
        if times.untimed:
            times.untimed -= 1
        else:
            timed.append(number)
            times.untimed = next(times.gaps)
    return timed


def test_one_request_in_so_many_is_timed() -> None:
    assert timed_of(RouteTimes(), 4) == [0, 1, 2, 3]
    timed = timed_of(RouteTimes(8), 1200)
    assert timed[0] == 0 and 130 < len(timed) < 170
    for kinds in range(2, 10):
        of_kinds = Counter(number % kinds for number in timed)
        assert min(of_kinds[kind] for kind in range(kinds)) > 75 / kinds, "however many take turns, all are seen"


def test_those_of_followers_are_apart() -> None:
    times = RouteTimes()
    request = RequestTimes(times, 0, 1, 100)
    request.count_as_follower()
    request.sent(5)
    assert times.total.count == 0
    assert times.followers is not None and times.followers.total.count == 1


def test_memory_is_bounded() -> None:
    times = RouteTimes()
    for _ in range(10_000):
        sent(times, local_ns=1, send_ns=1)
    assert phases(times)["total"].buckets[-1] == ("+Inf", 10_000)
