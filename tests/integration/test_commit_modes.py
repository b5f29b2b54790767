"""Stock consumers commit, and read records again or never after a stop: four clients, the same expectations.

`close` without automatic commits stands for a crash here: the group knows only the committed offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest

from tests.support.clients.api_calls import fresh_name
from tests.support.clients.confluent import create_topic, produce_all
from tests.support.clients.stock_consumers import COMMIT_INTERVAL_MS, KINDS, StockConsumer
from tests.support.nodes.node import Node
from tests.support.waiting import PATIENCE_S, eventually

COUNT = 60
PORTION = 20
Join = Callable[..., StockConsumer]


# Each way of committing is shown by librdkafka with both protocols; the two that every client has, by each of them.
EVERY_CLIENT = pytest.mark.parametrize("kind", list(KINDS), indirect=True)
IN_SHORT = ("confluent-kafka", "confluent-kafka, KIP-848")


@pytest.fixture(params=[name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.slow) for name in KINDS])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip({"kafka-python": "kafka", "aiokafka": "aiokafka"}.get(name, "confluent_kafka"))
    return name


@pytest.fixture
def topic(node: Node) -> str:
    """A topic of one partition with COUNT numbered records."""
    name = fresh_name("modes")
    create_topic(node.bootstrap, name, 1)
    append(node, name, range(COUNT))
    return name


@pytest.fixture
def join(node: Node, topic: str, kind: str) -> Iterator[Join]:
    """Make a member of one and the same group; closed at the end unless the test did it."""
    group = fresh_name("group")
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            closing_once(KINDS[kind](node.bootstrap, group, topic, **settings))
        )


def closing_once(consumer: StockConsumer) -> closing[StockConsumer]:
    close = consumer.close
    closed: list[bool] = []

    def once() -> None:
        if not closed:
            closed.append(True)
            close()

    consumer.close = once  # type: ignore[method-assign]  # the test replaces it
    return closing(consumer)


def append(node: Node, topic: str, numbers: range) -> None:
    produce_all(node.bootstrap, topic, [(None, b"%d" % number) for number in numbers])


def numbers(records: list[tuple[int, int, bytes]]) -> list[int]:
    assert [offset for _, offset, _ in records] == [int(value) for _, _, value in records]
    return [int(value) for _, _, value in records]


@EVERY_CLIENT
def test_commits_by_themselves_follow_what_was_read(join: Join) -> None:
    reader = join(auto_commit=True)
    assert numbers(reader.read(COUNT)) == list(range(COUNT))

    def caught_up() -> bool:
        assert reader.poll(1) == []  # some clients commit only while they are polled
        return reader.committed(0) == COUNT

    eventually(caught_up, f"all is committed, every {COMMIT_INTERVAL_MS} ms")
    assert reader.lag() == 0
    reader.close()
    assert join(auto_commit=True).poll(1) == [], "nothing is read again"


def test_a_commit_that_is_waited_for_is_there(join: Join) -> None:
    reader = join()
    for portion in range(3):
        reader.read(PORTION)
        reader.commit()
        assert reader.committed(0) == (portion + 1) * PORTION == reader.position(0)
        assert reader.lag() == COUNT - (portion + 1) * PORTION


def test_a_commit_that_is_not_waited_for_comes(join: Join) -> None:
    reader = join()
    reader.read(PORTION)
    reader.commit_async()
    reader.read(PORTION)
    reader.commit_async()

    def done() -> bool:
        reader.poll(1)
        return reader.committed(0) == 2 * PORTION

    eventually(done, "the later of both counts")


@EVERY_CLIENT
def test_at_least_once_reads_again_what_was_not_committed(join: Join) -> None:
    """Process, then commit: a job that stops in between repeats what followed the last commit, and loses nothing."""
    processed: list[int] = []
    reader = join()
    processed += numbers(reader.read(PORTION))
    reader.commit()
    processed += numbers(reader.read(PORTION))
    reader.close()
    again = join()
    processed += numbers(again.read(COUNT - PORTION))
    again.commit()
    assert processed == [*range(2 * PORTION), *range(PORTION, COUNT)]
    assert again.lag() == 0


def test_at_most_once_never_reads_again_what_was_committed(join: Join) -> None:
    """Commit, then process: a job that stops between both loses that portion, and no record is processed twice."""
    processed: list[int] = []
    reader = join()
    first = reader.read(PORTION)
    reader.commit()
    processed += numbers(first)
    reader.read(PORTION)
    reader.commit()
    reader.close()
    processed += numbers(join().read(COUNT - 2 * PORTION))
    assert processed == [*range(PORTION), *range(2 * PORTION, COUNT)]


def test_rewind_seek_and_skip_to_now(join: Join, node: Node, topic: str) -> None:
    reader = join()
    reader.read(COUNT)
    reader.commit()
    reader.seek(0, 0)
    assert numbers(reader.read(5)) == [0, 1, 2, 3, 4]
    assert reader.committed(0) == COUNT, "a position is not a commit"
    reader.seek(0, 30)
    assert numbers(reader.read(2)) == [30, 31]
    reader.commit()
    assert reader.committed(0) == 32, "and a commit may go back where its consumer says so"
    reader.seek_to_end()
    assert reader.poll(1) == []
    append(node, topic, range(COUNT, COUNT + 3))
    assert numbers(reader.read(3)) == [COUNT, COUNT + 1, COUNT + 2], "what came before is passed over"
    reader.commit()
    assert (reader.committed(0), reader.lag()) == (COUNT + 3, 0)


def test_surplus_members_are_idle_until_they_are_needed(join: Join) -> None:
    first = join()
    assert first.settle(1) == {0}
    second = join()

    def both_know() -> bool:
        second.poll(1)
        first.poll(1)
        return first.assigned() == {each.client_id: each.owned() for each in (first, second)}

    eventually(both_know, "the group has two members, and both know what is theirs")
    busy, idle = (first, second) if first.owned() else (second, first)
    assert (busy.owned(), idle.owned()) == ({0}, set())
    assert idle.poll(10) == []
    busy.commit()
    busy.close()
    assert idle.settle(1) == {0}


def test_a_member_that_comes_back_with_its_id_goes_on_alone(node: Node, kind: str) -> None:
    """With its group.instance.id it gets its partitions again, and the other member never lost its own."""
    name, group = fresh_name("static"), fresh_name("group")
    create_topic(node.bootstrap, name, 2)
    member = partial(KINDS[kind], node.bootstrap, group, name)
    with closing(member(instance_id="a")) as other:
        other.settle(2)
        with closing(member(instance_id="b")) as gone:
            deadline = time.monotonic() + PATIENCE_S
            while sorted((len(other.owned()), len(gone.owned()))) != [1, 1]:
                assert time.monotonic() < deadline, (other.owned(), gone.owned())
                other.poll(1)
                gone.poll(1)
            kept, had = other.owned(), gone.owned()
        with closing(member(instance_id="b")) as back:
            deadline = time.monotonic() + PATIENCE_S
            while back.owned() != had:
                assert time.monotonic() < deadline, back.owned()
                back.poll(1)
                other.poll(1)
                assert other.owned() == kept, "the other one was disturbed"
