"""Answers that are lost on the wire: the request is carried out, and its connection ends in place of the answer."""

from __future__ import annotations

import asyncio
import struct
from random import Random

import pytest

from odradek.protocol.api_key import ApiKey
from tests.sim.lost_answers import APIS, AnswerScan, choose
from tests.sim.network import NetworkFaults
from tests.sim.self.test_sim_network import Pair


def request(key: ApiKey, correlation_id: int, size: int = 20) -> bytes:
    return struct.pack(">ihhi", 8 + size, key, 0, correlation_id) + bytes(size)


def answer(correlation_id: int, size: int = 20) -> bytes:
    return struct.pack(">ii", 4 + size, correlation_id) + bytes(size)


@pytest.mark.parametrize("tiny", [0.0, 1.0])
def test_the_connection_ends_where_the_answer_would_begin(tiny: float) -> None:
    pair = Pair(1, NetworkFaults(lost_answer=1.0, losing=(ApiKey.JOIN_GROUP.name,), tiny_segments=tiny))
    asked = request(ApiKey.METADATA, 0) + request(ApiKey.JOIN_GROUP, 1) + request(ApiKey.METADATA, 2)

    async def scenario() -> None:
        transport = await pair.connect()
        transport.write(asked)
        await asyncio.sleep(1)
        (far,) = [each for each in pair.wires.transports.values() if each.host == "s"]
        far.write(answer(0) + answer(1) + answer(2))
        await asyncio.sleep(5)

    pair.run(scenario(), limit_s=20)
    assert pair.server.data == asked
    # A piece of the lost response's header may arrive.
    assert answer(0) == pair.client.data[: len(answer(0))]
    assert len(pair.client.data) - len(answer(0)) < len(answer(1, 0))
    assert [type(error) for error in pair.client.lost] == [type(error) for error in pair.server.lost]
    assert isinstance(pair.client.lost[0], ConnectionResetError)
    assert pair.wires.injected["lost answer"] == 1


@pytest.mark.parametrize("is_paused", [False, True])
def test_bytes_behind_a_lost_answer_are_not_scanned(is_paused: bool) -> None:
    pair = Pair(1, NetworkFaults(lost_answer=1.0, losing=(ApiKey.JOIN_GROUP.name,)))

    async def scenario() -> None:
        transport = await pair.connect()
        transport.write(request(ApiKey.METADATA, 0) + request(ApiKey.JOIN_GROUP, 1))
        if is_paused:
            transport.pause_reading()
        (far,) = [each for each in pair.wires.transports.values() if each.host == "s"]
        far.write(answer(0) + answer(1))
        far.write(b"\x80\0\0\0" * 30)  # as sizes of answers these are negative
        await asyncio.sleep(5)
        transport.resume_reading()
        await asyncio.sleep(5)

    pair.run(scenario(), limit_s=20)
    assert pair.client.data == answer(0)
    assert [type(error) for error in pair.client.lost] == [ConnectionResetError]


def test_answers_of_other_apis_and_faults_that_are_left_out_arrive() -> None:
    whole = answer(0) + answer(1)
    for losing, left_out in ((("SYNC_GROUP",), False), (("JOIN_GROUP",), True)):
        pair = Pair(1, NetworkFaults(lost_answer=1.0, losing=losing, tiny_segments=0.5))
        pair.wires.happens = lambda fault, left_out=left_out: not left_out  # type: ignore[misc]  # a default binds it to this round

        async def scenario(pair: Pair = pair) -> None:
            transport = await pair.connect()
            transport.write(request(ApiKey.JOIN_GROUP, 0) + request(ApiKey.METADATA, 1))
            (far,) = [each for each in pair.wires.transports.values() if each.host == "s"]
            far.write(whole)
            await asyncio.sleep(5)

        pair.run(scenario(), limit_s=20)
        assert (pair.client.data, pair.client.lost) == (whole, [])


def test_an_answer_without_a_request_is_not_lost() -> None:
    scan = AnswerScan(lambda key: True)
    assert scan.lost_at(answer(7)) is None
    scan.asked(request(ApiKey.PRODUCE, 7, 0) + request(ApiKey.PRODUCE, 8, 0))
    assert scan.lost_at(answer(7, 0)) == 0
    assert AnswerScan(lambda key: True).lost_at(b"") is None


def test_seeds_choose_some_apis_each() -> None:
    chosen = [choose(Random(seed)) for seed in range(40)]
    assert len(set(chosen)) == 40
    assert {name for names in chosen for name in names} == {key.name for key in APIS}
