"""The scenes: each changes a cluster, and states the result that Kafka's rules define."""

from __future__ import annotations

from collections.abc import Callable

from odradek.cli.lab.clients import PATIENCE_S
from odradek.cli.lab.workbench import Workbench

Scene = Callable[[Workbench], None]


def three_consumers(bench: Workbench) -> None:
    """Three consumers of a group share the partitions; if one is killed, the others get its partitions."""
    bench.make_topic("shared", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    with bench.consumers("shared", "readers", 3) as processes:
        bench.step("three consumers read three partitions", "1, 1, 1", lambda: bench.shares("readers"))
        processes[0].kill()
        bench.step("one is killed, and its session ends", "1, 2", lambda: bench.shares("readers"))


def consumer_dies(bench: Workbench) -> None:
    """The next consumer of a group begins at the committed offset."""
    bench.make_topic("committed", [1, 2, 3])
    bench.write("committed", "a", "b", "c")
    bench.record("a consumer reads a, b, commits after a, and is killed (kill -9)", "a, b", bench.killed("read-two"))
    bench.record("the next one of the group begins there", "b, c", bench.killed("read-two"))


def in_sync_set(bench: Workbench) -> None:
    """A killed broker is removed from the ISR; producers continue; after its restart it catches up."""
    bench.make_topic("replicated", [1, 2, 3], min_isr=2)
    bench.step("three copies, all in sync", "1, 2, 3", lambda: bench.in_sync("replicated"))
    bench.cluster[3].kill()
    bench.step("broker 3 is killed (kill -9)", "1, 2", lambda: bench.in_sync("replicated"))
    bench.record("a record is written, acks=all", "acknowledged", bench.write("replicated", "a"))
    bench.cluster[3].start()
    bench.step("broker 3 starts again", "1, 2, 3", lambda: bench.in_sync("replicated"))


def min_insync_replicas(bench: Workbench) -> None:
    """Below min.insync.replicas a producer with acks=all is refused, and acknowledged records are not at risk."""
    bench.make_topic("careful", [1, 2], min_isr=2)
    bench.record("two copies, min.insync.replicas=2", "acknowledged", bench.write("careful", "a"))
    bench.cluster[2].kill()
    bench.step("broker 2 is killed", "1", lambda: bench.in_sync("careful"))
    bench.record(
        "a record is written, acks=all",
        "NOT_ENOUGH_REPLICAS",
        bench.write("careful", "refused", message_send_max_retries=0, enable_idempotence=False),
    )
    bench.cluster[2].start()
    bench.step("broker 2 starts again", "1, 2", lambda: bench.in_sync("careful"))
    bench.record("a record is written again", "acknowledged", bench.write("careful", "b"))
    bench.record("what is there", "a, b", bench.read("careful"))


def unclean_election(bench: Workbench) -> None:
    """Without an in-sync replica a partition has no leader; an unclean election loses records."""
    bench.make_topic("risky", [1, 2], min_isr=1)
    bench.write("risky", "a")
    bench.step("two copies, min.insync.replicas=1", "1, 2", lambda: bench.in_sync("risky"))
    bench.cluster[2].kill()
    bench.step("broker 2 is killed", "1", lambda: bench.in_sync("risky"))
    bench.record("a record is written, acks=all", "acknowledged", bench.write("risky", "b"))
    bench.cluster[1].kill()
    bench.cluster[2].start()
    bench.step("broker 1 is killed, broker 2 starts", "-1", lambda: bench.leader("risky"))
    bench.elect_unclean("risky")
    bench.step("an unclean election", "2", lambda: bench.leader("risky"))
    bench.step("what is there: b is lost", "a", lambda: bench.read("risky"))
    bench.cluster[1].start()
    bench.step("broker 1 is back, and follows", "1, 2", lambda: bench.in_sync("risky"))


def producer_dies(bench: Workbench) -> None:
    """A successor aborts the transaction of a producer that died, and fences one that only hung."""
    from confluent_kafka import KafkaException

    bench.make_topic("payments", [1, 2, 3], min_isr=2)
    bench.record("a producer writes half a transaction, and is killed (kill -9)", "written", bench.killed("write-half"))
    bench.record("what is there", "nothing", bench.read("payments"))
    hanging = bench.producer(transactional_id="payer")
    hanging.init_transactions(PATIENCE_S)
    hanging.begin_transaction()
    hanging.produce("payments", "late")
    hanging.flush(PATIENCE_S)
    bench.record("its successor writes half a transaction, and hangs", "nothing", bench.read("payments"))
    last = bench.producer(transactional_id="payer")
    last.init_transactions(PATIENCE_S)
    last.begin_transaction()
    last.produce("payments", "whole")
    last.commit_transaction(PATIENCE_S)
    bench.step("the next one writes a whole transaction", "whole", lambda: bench.read("payments"))
    try:
        hanging.commit_transaction(PATIENCE_S)
        seen = "committed"
    except KafkaException as error:
        seen = "fenced" if error.args[0].fatal() else error.args[0].name()
    bench.record("the one that hung wakes up, and commits", "fenced", seen)
    bench.record("what is there", "whole", bench.read("payments"))


def exactly_once(bench: Workbench) -> None:
    """A copier that is killed copies each record once all the same: offsets and copies commit together."""
    bench.make_topic("numbers", [1, 2, 3], min_isr=2)
    bench.make_topic("results", [1, 2, 3], min_isr=2)
    numbers = [str(number) for number in range(1, 13)]
    bench.write("numbers", *numbers)
    bench.record("a copier is killed amid its second transaction (kill -9)", "hangs", bench.killed("copy"))
    bench.step("committed are the copies of the first", "1, 2, 3, 4, 5", lambda: bench.read("results"))
    bench.record("another copier goes on to the end", "done", bench.killed("copy"))
    bench.step("each record is copied once", ", ".join(numbers), lambda: bench.read("results"))
    seen = bench.read("results", committed=False).split(", ")
    bench.record("read_uncommitted sees the aborted copies, too", "14 records", f"{len(seen)} records")


SCENES: dict[str, Scene] = {
    "three-consumers": three_consumers,
    "consumer-dies": consumer_dies,
    "in-sync-set": in_sync_set,
    "min-insync-replicas": min_insync_replicas,
    "unclean-election": unclean_election,
    "producer-dies": producer_dies,
    "exactly-once": exactly_once,
}
