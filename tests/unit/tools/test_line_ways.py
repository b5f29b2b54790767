"""The fate of each packet on a wide-area line of tests, by times that the test gives, without a device."""

from __future__ import annotations

from tests.support.network.carrier import Crossed, Way


def test_a_packet_arrives_after_the_delay_and_in_its_order() -> None:
    way = Way(delay_s=0.5)
    way.send(b"a", 1.0)
    way.send(b"b", 1.25)
    assert way.next_s == 1.5
    assert way.arrived(1.49) == []
    assert way.arrived(1.5) == [b"a"]
    way.change({"delay_s": 0.125})
    way.send(b"c", 1.5)
    assert way.arrived(1.74) == []
    assert way.arrived(1.75) == [b"b", b"c"]
    assert way.next_s is None
    assert way.crossed == Crossed(packets=3, bytes=3)


def test_a_seed_decides_which_packets_are_lost() -> None:
    def arriving(seed: int, loss: float) -> list[bytes]:
        way = Way(seed=seed, loss=loss)
        for number in range(1000):
            way.send(b"%d" % number, 0.0)
        found = way.arrived(0.0)
        assert (way.crossed.packets, way.crossed.lost) == (len(found), 1000 - len(found))
        return found

    assert arriving(1, 0.2) == arriving(1, 0.2) != arriving(2, 0.2)
    assert 700 < len(arriving(1, 0.2)) < 900
    assert (len(arriving(1, 0.0)), len(arriving(1, 1.0))) == (1000, 0)


def test_a_cut_drops_what_comes_and_what_is_under_way() -> None:
    way = Way(delay_s=1.0)
    way.send(b"under way", 0.0)
    way.change({"is_cut": True})
    way.send(b"later", 0.5)
    assert way.arrived(2.0) == []
    way.change({"is_cut": False})
    way.send(b"healed", 2.0)
    assert way.arrived(3.0) == [b"healed"]
    assert way.crossed == Crossed(packets=1, bytes=6, cut=2)


def test_packets_wait_for_the_bandwidth_up_to_the_queue() -> None:
    way = Way(bytes_per_s=100, queue_bytes=250)
    for name in (b"a", b"b", b"c", b"d"):
        way.send(name * 100, 0.0)
    assert way.crossed.full == 1, "300 bytes waited for the last one"
    assert [len(way.arrived(at_s)) for at_s in (0.99, 1.0, 2.0, 3.0, 9.0)] == [0, 1, 1, 1, 0]
    way.send(b"e" * 100, 20.0)
    assert way.next_s == 21.0, "time without packets is not saved up"
