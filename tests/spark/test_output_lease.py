"""Writing under an output lease without Spark: two groups, the command that transfers it, and each of them dying.

A `Query` is one group's driver: it plans by the source's own rule, and commits. A step that raises stands for a process
that dies there.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client.output_lease import transfer as transfers
from odradek.client.output_lease.lease import OutputLease, first_ahead, lag, parse_lease
from pyspark_odradek.client.cluster import ClientSettings, Cluster
from pyspark_odradek.client.offsets import Positions, TopicPartition, capped
from pyspark_odradek.errors import ClusterError, FencedError, LeaseError, OptionError
from pyspark_odradek.options import parse_read_options
from pyspark_odradek.standby.batches import Action, Span, action_for, parse_offsets_file
from pyspark_odradek.standby.commit import LeasedCommit, create_lease, current_lease
from pyspark_odradek.standby.source import LeasedSource
from pyspark_odradek.topic_sink import transaction
from pyspark_odradek.topic_sink.transaction import Work
from tests.spark.queries import ON_BOTH
from tests.spark.test_transaction import DiesError, committed, work
from tests.support.clients.cli import odradek as command
from tests.support.clients.confluent import create_topic, produce_all

PART = TopicPartition("in", 0)
OTHER = TopicPartition("in", 1)
_numbers = itertools.count()


def gate(group: str = "a", **covered: int) -> OutputLease:
    return OutputLease(group, 0, "", {("in", int(name[1:])): offset for name, offset in covered.items()})


def span(start: tuple[int, ...] | None, end: tuple[int, ...]) -> Span:
    def positions(offsets: tuple[int, ...]) -> Positions:
        return {TopicPartition("in", number): offset for number, offset in enumerate(offsets)}

    return Span(None if start is None else positions(start), positions(end))


def test_the_lease_decides_which_group_writes_a_batch() -> None:
    now = gate("a", p0=10, p1=20)
    assert action_for(now, "a", span((10, 20), (15, 20))) is Action.WRITE
    assert action_for(now, "b", span((10, 20), (15, 20))) is Action.WAIT
    for group in "ab":
        assert action_for(now, group, span((5, 5), (10, 20))) is Action.SKIP
        assert action_for(now, group, span((10, 20), (10, 20))) is Action.SKIP
        assert action_for(now, group, span(None, (3, 4))) is Action.SKIP
    assert action_for(now, "b", span((5, 20), (11, 20))) is Action.WAIT, "what lies across is never left out"
    assert action_for(
        now, "a", span((10, 20), (10, 20))._replace(end={PART: 10, OTHER: 20, TopicPartition("in", 2): 3})
    ) is (Action.WRITE), "a partition that is new begins where it begins"
    assert action_for(now, "a", span(None, (10, 21))) is Action.WRITE, "the first batch of a query has no start"
    for stray in (span((5, 20), (15, 20)), span((11, 20), (15, 20)), span((10, 19), (11, 21)), span(None, (11, 19))):
        with pytest.raises(LeaseError, match="would leave a gap or write something twice"):
            action_for(now, "a", stray)


def test_behind_and_ahead() -> None:
    covered = gate("a", p0=10, p1=20).covered
    assert (lag({PART: 9, OTHER: 20}, covered), lag({PART: 10}, covered), lag({PART: 10, OTHER: 21}, covered)) == (
        1,
        20,
        0,
    )
    assert first_ahead({PART: 10, OTHER: 21}, covered) == OTHER
    assert first_ahead({PART: 10, TopicPartition("in", 7): 3}, covered) is None


def test_the_highest_turn_is_how_a_gate_is() -> None:
    assert parse_lease([]) is None
    new, old = gate("b", p0=1).transferred_to("c").metadata(), gate("a", p0=1).metadata()
    assert parse_lease([("in", 0, 7, old), ("in", 1, 9, new), ("in", 2, -1, "")]) == OutputLease(
        "c", 1, "", {("in", 0): 7, ("in", 1): 9}
    )
    for text in ("odradek-spark", "{}", "[]", '{"turn": "x"}'):
        with pytest.raises(ValueError, match="no gate has"):
            parse_lease([("in", 0, 7, text)])


def test_a_standby_at_a_recent_end_of_the_output_has_caught_up() -> None:
    def at(offset: int, is_standby: bool = True) -> transfers.Progress:
        return transfers.Progress(is_standby, {("in", 0): offset})

    catch_up = transfers.CatchUp(within_s=1.0)
    assert not catch_up.has_caught_up(0.0, {("in", 0): 100}, None)
    assert not catch_up.has_caught_up(0.1, {("in", 0): 200}, at(99))
    assert catch_up.has_caught_up(0.9, {("in", 0): 900}, at(150))
    assert not catch_up.has_caught_up(1.2, {("in", 0): 1200}, at(150)), "where it was 1.1 s ago does not count"
    assert not catch_up.has_caught_up(1.3, {("in", 0): 1200}, at(1200, is_standby=False))
    assert not catch_up.has_caught_up(1.4, {("in", 0): 1200}, at(1201)), "its input is not written yet"
    assert catch_up.has_caught_up(1.5, {("in", 0): 1200}, at(1200))


def test_offsets_of_a_batch_are_parsed_from_the_checkpoint() -> None:
    head = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n'
    assert parse_offsets_file(head + '{"in": {"0": 7, "1": 9}}', "x") == {PART: 7, OTHER: 9}
    for text, why in (
        ("v2\n{}\n{}", "version of Spark"),
        ("v1", "version of Spark"),
        (head + '{"in": {"0": 7}}\n{"other": {"0": 1}}', "2 sources"),
        (head + "17", "another source"),
        (head + "-", "another source"),
        (head.replace(":0,", ":5,") + '{"in": {"0": 7}}', "watermark"),
    ):
        with pytest.raises(OptionError, match=why):
            parse_offsets_file(text, "x")


_clusters: list[Cluster] = []


class Query:
    """The driver of one group: plans as the source does, and commits as the sink does."""

    def __init__(self, bootstrap: str, topic: str, group: str, *, standby: bool = False) -> None:
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.standby = standby
        self.batches: list[Positions] = []  # the checkpoint: where each planned batch ends
        self.done = 0
        self.cluster = Cluster(ClientSettings.parse({"bootstrap.servers": bootstrap}))
        _clusters.append(self.cluster)
        self.start()

    def start(self) -> None:
        """Start, or start again after a death: a new run on the same checkpoint."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "groupId": self.group}
        options |= {"gate": self.topic, "standby": str(self.standby).lower()}
        self.source = LeasedSource(parse_read_options(options, streaming=True))
        self.run_id = f"run-{next(_numbers)}"
        transaction._SESSIONS.clear()

    @property
    def position(self) -> Positions:
        return self.batches[self.done - 1] if self.done else {TopicPartition(self.topic, 0): 0}

    def plan(self, most: int = 100) -> bool:
        """Write a batch down, where there is none that is not done, and something to read."""
        if self.done < len(self.batches):
            return True
        limit = self.source.limit(self.cluster, self.position)
        end = self.cluster.list_offsets({TopicPartition(self.topic, 0): -1})
        end = {p: min(offset, self.position[p] + most) for p, offset in end.items()}
        if limit is not None:
            end = capped(self.position, end, limit)
        if end == self.position:
            return False
        self.batches.append(end)
        return True

    def commit(self, committing: type[LeasedCommit] = LeasedCommit, **named: Any) -> bool:
        """Do the batch that is planned; whether it was written."""
        start = self.batches[self.done - 1] if self.done else None
        end = self.batches[self.done]
        before = (start or {}).get(TopicPartition(self.topic, 0), 0)
        numbers = range(before, end[TopicPartition(self.topic, 0)])
        output = work(f"{self.topic}-out", self.done, self.run_id, numbers)
        written = committing(self.cluster, self.topic, self.group, Span(start, end), **named).commit(output)
        self.done += 1
        return written

    def step(self) -> bool:
        return self.plan() and self.commit()

    def run_to(self, end: int, most: int = 100) -> None:
        """Do all batches up to this offset; those of another group are seen a moment after their commit."""
        while self.position != {TopicPartition(self.topic, 0): end}:
            if self.plan(most):
                self.commit()

    def await_gate(self) -> OutputLease:
        """The gate, once all can see that it is where this query stands, which is so a moment after its commit."""
        covered = {tuple(partition): offset for partition, offset in self.position.items()}
        while (found := current_lease(self.cluster, self.topic)) is None or found.covered != covered:
            time.sleep(0.01)
        return found

    def follow(self, writer: Query, most: int) -> None:
        """Stand by until all that a writer has written is passed over: it is seen a moment after it was committed."""
        while self.position != writer.position:
            assert not (self.plan(most) and self.commit())


@pytest.fixture(autouse=True)
def no_sessions() -> Iterator[None]:
    transaction._SESSIONS.clear()
    yield
    transaction._SESSIONS.clear()
    while _clusters:
        _clusters.pop().close()


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic of 1,000 records, and one for the output."""
    create_topic(bootstrap, topic, 1)
    create_topic(bootstrap, f"{topic}-out", 3)
    produce_all(bootstrap, topic, [(b"%d" % n, b"%d" % n) for n in range(1000)])
    return topic


def turn(bootstrap: str, topic: str, from_group: str, to_group: str, **named: Any) -> None:
    """Turn the gate by the command, which here need not wait: a query of these tests is a member of no group."""
    command(bootstrap, "groups", "switch", from_group, to_group, "--gate", topic, "--force", "--timeout", 0, **named)


def out(bootstrap: str, topic: str) -> list[int]:
    return committed(bootstrap, f"{topic}-out")


@pytest.fixture(autouse=True)
def no_wait_for_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that takes over does so when the test lets it."""
    monkeypatch.setattr("odradek.cli.group_switch.TAKES_OVER_WITHIN_S", 0.0)


@ON_BOTH
def test_a_standby_goes_on_where_the_output_ends_and_so_back(bootstrap: str, filled: str) -> None:
    a, b = Query(bootstrap, filled, "a"), Query(bootstrap, filled, "b", standby=True)
    assert not b.plan(), "the gate is a's to make"
    for _ in range(3):
        assert a.step()
    b.follow(a, most=70)
    assert out(bootstrap, filled) == list(range(300))
    turn(bootstrap, filled, "a", "b")
    for _ in range(2):
        assert b.step()
    a.start()
    a.follow(b, most=30)
    turn(bootstrap, filled, "b", "a")
    while a.step():
        continue
    assert out(bootstrap, filled) == list(range(1000))
    found = a.await_gate()
    assert (found.group, found.epoch, found.covered) == ("a", 2, {(filled, 0): 1000})


def test_a_writer_fenced_within_a_batch_becomes_the_standby(bootstrap: str, filled: str) -> None:
    """The fenced query needs no restart: the other group writes the batch that it had planned."""
    a, b = Query(bootstrap, filled, "a"), Query(bootstrap, filled, "b", standby=True)
    a.step()
    b.follow(a, most=100)
    assert a.plan()
    turn(bootstrap, filled, "a", "b")
    waiting = threading.Thread(target=a.commit)
    waiting.start()
    b.run_to(1000)
    waiting.join(120)
    assert not waiting.is_alive() and a.done == 2
    assert a.source.limit(a.cluster, a.position) is not None and a.source.is_standby
    assert out(bootstrap, filled) == list(range(1000))


def test_two_processes_take_turns_with_the_batches_of_a_run(bootstrap: str, filled: str) -> None:
    """A process's memory of the lease is its state before the other's batch."""
    a = Query(bootstrap, filled, "a")
    held: list[dict[Any, Any]] = [{}, {}]
    for number in range(6):
        transaction._SESSIONS.clear()
        transaction._SESSIONS.update(held[number % 2])
        assert a.step()
        held[number % 2] = dict(transaction._SESSIONS)
    assert out(bootstrap, filled) == list(range(600))


class DyingCommit(LeasedCommit):
    """A writer that dies before or after one of its steps."""

    def __init__(self, *args: Any, step: str, after: bool) -> None:
        super().__init__(*args)
        self.step, self.after = step, after

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("step", "after") or name != self.step:
            return found

        def dies(*args: Any, **named: Any) -> Any:
            if self.after:
                found(*args, **named)
            raise DiesError

        return dies


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", ["begin", "_found", "produce", "mark", "end"])
def test_the_writer_dies_in_a_step_and_either_goes_on_or_is_switched(
    odradek: str, topic: str, step: str, after: bool
) -> None:
    for switched in (False, True):
        name = f"{topic}-{switched}"
        create_topic(odradek, name, 1)
        create_topic(odradek, f"{name}-out", 3)
        produce_all(odradek, name, [(b"%d" % n, b"%d" % n) for n in range(400)])
        a, b = Query(odradek, name, "a"), Query(odradek, name, "b", standby=True)
        a.step()
        b.step()
        a.start()
        assert a.plan()
        with pytest.raises(DiesError):
            a.commit(DyingCommit, step=step, after=after)
        if switched:
            turn(odradek, name, "a", "b")
            b.run_to(400)
        a.start()
        a.run_to(400)
        assert out(odradek, name) == list(range(400))


@pytest.mark.parametrize("step", ["fence", "commit", "end"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
def test_the_command_dies_in_a_step(
    odradek: str, topic: str, monkeypatch: pytest.MonkeyPatch, step: str, after: bool, alive: bool
) -> None:
    """It changed nothing or all: the writer goes on, or the other does; to run it again is right in any case."""
    create_topic(odradek, topic, 1)
    create_topic(odradek, f"{topic}-out", 3)
    produce_all(odradek, topic, [(b"%d" % n, b"%d" % n) for n in range(400)])
    a, b = Query(odradek, topic, "a"), Query(odradek, topic, "b", standby=True)
    a.step()
    b.follow(a, most=100)
    found = getattr(transfers._Holder, step)

    async def dies(*args: Any) -> None:
        if after:
            await found(*args)
        raise DiesError

    with monkeypatch.context() as patch:
        patch.setattr(transfers._Holder, step, dies)
        with pytest.raises(DiesError):
            turn(odradek, topic, "a", "b")
    is_turned = step == "end" and after
    if is_turned:
        while not b.step():  # an end is answered a moment before it is seen
            time.sleep(0.01)
    elif alive:
        assert a.step(), "a writer that was fenced for nothing starts again"
        b.step()
    turn(odradek, topic, "a", "b")
    b.run_to(400)
    assert out(odradek, topic) == list(range(400))


def test_a_live_writer_is_fenced_until_the_lease_is_transferred(odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 1)
    create_topic(odradek, f"{topic}-out", 3)
    produce_all(odradek, topic, [(b"%d" % n, b"%d" % n) for n in range(3000)])
    a, b = Query(odradek, topic, "a"), Query(odradek, topic, "b", standby=True)
    a.step()

    def write() -> None:
        while a.plan(most=10):
            a.commit()

    writing = threading.Thread(target=write)
    writing.start()
    turn(odradek, topic, "a", "b")
    b.run_to(3000, most=300)
    writing.join(120)
    assert not writing.is_alive()
    assert out(odradek, topic) == list(range(3000))


def test_two_that_make_a_gate_at_once_agree(odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 1)
    clusters = [Cluster(ClientSettings.parse({"bootstrap.servers": odradek})) for _ in range(4)]
    _clusters.extend(clusters)
    made: list[OutputLease] = []

    def make(number: int) -> None:
        made.append(create_lease(clusters[number], topic, f"group-{number}", {TopicPartition(topic, 0): number}))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 4 and all(each == made[0] for each in made)
    assert current_lease(clusters[0], topic) == made[0]


def test_invalid_transfers_are_refused(odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 1)
    create_topic(odradek, f"{topic}-out", 3)
    produce_all(odradek, topic, [(b"%d" % n, b"%d" % n) for n in range(300)])
    a = Query(odradek, topic, "a")
    a.batches.append({TopicPartition(topic, 0): 50})
    with pytest.raises(LeaseError, match="never made: the source makes it"):
        a.commit()
    a.batches.clear()
    assert a.step()
    a.await_gate()
    late = Query(odradek, topic, "a")
    late.batches.append({TopicPartition(topic, 0): 200})
    late.done = 1
    with pytest.raises(LeaseError, match=r"would be left out.* where its writer has no option gate"):
        late.plan()
    idle = Query(odradek, topic, "a")
    idle.batches += [{TopicPartition(topic, 0): 100}, {TopicPartition(topic, 0): 100}]
    committing = LeasedCommit(idle.cluster, topic, "a", Span(idle.batches[0], idle.batches[1]))
    with pytest.raises(OptionError, match="as timers make them"):
        committing.commit(work(f"{topic}-out", 1, "run", range(3)))
    assert not committing.commit(Work(1, "run", frozenset(), tuple))
    other = Query(odradek, topic, "a")
    other.batches, other.done = list(a.batches), a.done
    other.plan()
    assert other.commit()
    a.run_id = "run-of-before"
    with pytest.raises((FencedError, ClusterError)):
        a.plan()
        a.batches[-1] = {TopicPartition(topic, 0): 250}
        a.commit()


def test_the_command_says_what_it_finds(odradek: str, topic: str) -> None:
    create_topic(odradek, topic, 1)
    create_topic(odradek, f"{topic}-out", 3)
    produce_all(odradek, topic, [(b"%d" % n, b"%d" % n) for n in range(300)])

    def fails(*words: object) -> str:
        ran = command(odradek, "groups", "switch", *words, "--timeout", 0, code=None)
        assert ran.code != 0
        return ran.err

    group_a, group_b = f"{topic}-a", f"{topic}-b"
    assert "are the same" in fails("a", "a")
    assert "writes through no gate" in fails(group_a, group_b)
    assert "there is no gate" in fails(group_a, group_b, "--gate", topic)
    a = Query(odradek, topic, group_a)
    a.step()
    assert "writes through no gate" in fails(group_b, "third")
    assert f"group {group_a} writes through gate" in fails(group_b, "third", "--gate", topic)
    assert "has never stood by" in fails(group_a, group_b)
    a.await_gate()
    b = Query(odradek, topic, group_b, standby=True)
    b.plan()
    assert "is 100 records behind" in fails(group_a, group_b)
    b.commit()
    b.plan()
    assert "has no member: its query does not run" in fails(group_a, group_b)
    turn(odradek, topic, group_a, group_b)
    assert "writes through gate" in command(odradek, "groups", "switch", group_a, group_b).out
    assert "wrote before, and has not stood by since" in fails(group_b, group_a)
    assert command(odradek, "groups", "switch", group_a, group_b, "--json").json["switched"] is False
