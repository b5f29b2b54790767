"""`odradek transactions`: list and describe transactions, find hanging ones, and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.completion import topic_names
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, administer, target
from odradek.cli.errors import FAILED, NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say, say_on_stderr
from odradek.common.numbers import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.client.transactions import OpenTransaction

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, describe and end transactions.")

# transaction.max.timeout.ms by default: no producer may ask for more.
DEFAULT_MAX_TIMEOUT_MINUTES = 15.0
MOST_MINUTES = INT32_MAX / 60_000
TopicOption = Annotated[str | None, typer.Option("--topic", help="A topic.", autocompletion=topic_names)]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", help="One of the topic's partitions.", min=0, max=INT32_MAX)
]


@app.command("list")
def list_transactions(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only in this state, as Ongoing.")] = None,
    producer_id: Annotated[list[int] | None, typer.Option("--producer-id", help="Only of this producer.")] = None,
    longer_than_ms: Annotated[
        int, typer.Option("--longer-than-ms", help="Only those open for so long.", min=-1, max=INT64_MAX)
    ] = -1,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Only ids that this regular expression (RE2) matches whole.")
    ] = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the transactional ids of all brokers."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from odradek.client import transactions

        found = await transactions.list_transactions(
            cluster,
            states=state or (),
            producer_ids=producer_id or (),
            duration_ms=longer_than_ms,
            pattern=pattern,
        )
        return [
            {
                "transactional_id": each.transactional_id,
                "coordinator": each.coordinator_id,
                "producer_id": each.producer_id,
                "state": each.state,
            }
            for each in found
        ]

    found = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(found)
    else:
        headings = ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"]
        print_table(headings, [list(each.values()) for each in found])


@app.command("describe")
def describe(
    transactional_id: Annotated[str, typer.Option("--transactional-id", help="The id.")],
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one transactional id: its producer, its state, and the partitions of its open transaction."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        from odradek.client import transactions

        coordinator, found = await transactions.describe_transaction(cluster, transactional_id)
        started = found.transaction_start_time_ms
        return {
            "transactional_id": transactional_id,
            "coordinator": coordinator,
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "state": found.transaction_state,
            "timeout_ms": found.transaction_timeout_ms,
            "started_ms": started if started >= 0 else None,
            "partitions": [f"{topic.topic}-{number}" for topic in found.topics for number in topic.partitions],
        }

    found = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        say(f"{name.replace('_', ' ')}: {'-' if shown in (None, '') else shown}")


@app.command("find-hanging")
def find_hanging(
    topic: TopicOption = None,
    partition: PartitionOption = None,
    max_transaction_timeout: Annotated[
        float,
        typer.Option(
            "--max-transaction-timeout",
            help="Minutes: the brokers' transaction.max.timeout.ms.",
            min=0,
            max=MOST_MINUTES,
        ),
    ] = DEFAULT_MAX_TIMEOUT_MINUTES,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find transactions that no coordinator will end, in one topic or in all."""
    if partition is not None and topic is None:
        raise CliError("--partition needs --topic", code=USAGE)
    unasked: list[tuple[str, int]] = []

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from odradek.client import transactions
        from odradek.client.cluster import partitions_of
        from odradek.common.real_io import RealClock

        described = (await cluster.metadata(None if topic is None else [topic])).topics
        partitions = [key for key in partitions_of(described) if partition in (None, key[1])]
        if topic is not None and not partitions:
            what = f"topic {topic}" if partition is None else f"partition {topic}-{partition}"
            raise CliError(f"there is no {what}; `odradek topics describe` shows what there is", code=NOT_FOUND)
        found = await transactions.find_hanging(
            cluster,
            partitions,
            now_ms=RealClock().now_ms(),
            max_timeout_ms=int(max_transaction_timeout * 60_000),
            without_leader=unasked,
        )
        return [_shown(each) for each in found]

    found = administer(target(bootstrap_server, command_config), work)
    for name, number in unasked:
        say_on_stderr(f"{name}-{number} has no leader to be asked about it")
    if as_json:
        print_json(found)
        return
    headings = ["TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH", "START-OFFSET", "LAST-MS"]
    print_table(headings, [list(each.values()) for each in found])
    if found:
        say_on_stderr("End one with: odradek transactions abort --topic TOPIC --partition N --start-offset OFFSET")


def _shown(found: OpenTransaction) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "partition": found.partition_id,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.producer_epoch,
        "coordinator_epoch": found.producer.coordinator_epoch,
        "start_offset": found.start_offset,
        "last_timestamp_ms": found.producer.last_timestamp,
    }


@app.command("abort")
def abort(
    topic: Annotated[str, typer.Option("--topic", help="The topic.", autocompletion=topic_names)],
    partition: Annotated[
        int, typer.Option("--partition", help="The partition in which it hangs.", min=0, max=INT32_MAX)
    ],
    start_offset: Annotated[
        int,
        typer.Option("--start-offset", help="Where it begins there, as find-hanging prints it.", min=0, max=INT64_MAX),
    ],
    force: Annotated[
        bool,
        typer.Option("--force", help="Also where its coordinator will end it: there it may be committed elsewhere."),
    ] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a transaction that hangs, in one partition: its records there count as aborted."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        from odradek.client import transactions

        for each in await transactions.open_transactions(cluster, [(topic, partition)]):
            if each.start_offset == start_offset:
                owner = None if force else await transactions.owner_of(cluster, each)
                if owner is not None:
                    raise CliError(
                        f"the transaction belongs to {owner}, whose coordinator will end it in every partition alike; "
                        f"`odradek transactions terminate --transactional-id {owner}` aborts it everywhere",
                        code=FAILED,
                    )
                await transactions.abort_in_partition(cluster, each)
                return _shown(each)
        raise CliError(f"no transaction is open in {topic}-{partition} from offset {start_offset} on", code=FAILED)

    ended = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"aborted": ended})
        return
    typer.echo(f"Aborted in {topic}-{partition}: producer {ended['producer_id']}, from offset {start_offset} on.")


@app.command("terminate")
def terminate(
    transactional_id: Annotated[str, typer.Option("--transactional-id", help="The id.")],
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fence the producer of a transactional id, and abort the transaction that it has open."""

    async def work(cluster: Cluster) -> None:
        from odradek.client import transactions

        await transactions.terminate(cluster, transactional_id)

    administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"terminated": transactional_id})
        return
    say(f"Terminated: what {transactional_id} had open is aborted, and its producer is fenced.")
