"""`odradek topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.completion import topic_names
from odradek.cli.connect import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    administer,
    parse_assignments,
    target,
)
from odradek.cli.errors import BAD_CONFIG, NOT_FOUND, USAGE, CliError
from odradek.cli.names import (
    PatternArgument,
    TopicArgument,
    TopicOption,
    TopicsOption,
    at_most_one_topic,
    one_topic,
    some_topics,
)
from odradek.cli.output import JsonOption, print_json, print_table
from odradek.common.numbers import INT16_MAX, INT32_MAX

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.protocol.messages.describe_configs_response import DescribeConfigsResourceResult
    from odradek.protocol.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

AssignmentOption = Annotated[
    str,
    typer.Option("--replica-assignment", help="Brokers of each partition: 1:2,2:3 is 1 and 2 for the first, 2 and 3."),
]
ExcludeInternalOption = Annotated[bool, typer.Option("--exclude-internal", help="Leave internal topics out.")]


@app.command("create")
def create(
    name: TopicArgument = None,
    topic: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="How many; else as the broker's default.", min=1, max=INT32_MAX)
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", help="Copies of each; else as the broker's default.", min=1, max=INT16_MAX
        ),
    ] = None,
    replica_assignment: AssignmentOption = "",
    config: Annotated[list[str] | None, typer.Option("--config", help="key=value; may be given often.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing where it exists.")] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only say whether it could be.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a topic."""
    topic = one_topic(name, topic)
    assignment = _assignment(replica_assignment)
    if assignment and (partitions or replication_factor):
        raise CliError("--replica-assignment says both counts; leave --partitions and --replication-factor out", code=2)
    configs = parse_assignments(config, "--config")

    async def work(cluster: Cluster) -> dict[str, Any]:
        from odradek.client.admin import UNSET_COUNT, create_topic
        from odradek.common.errors import ApiError, ErrorCode
        from odradek.raft.quorum_state import uuid_text

        try:
            made = await create_topic(
                cluster,
                topic,
                partitions=partitions or UNSET_COUNT,
                replication_factor=replication_factor or UNSET_COUNT,
                assignment=assignment,
                configs=configs,
                validate_only=validate_only,
            )
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                return {"topic": topic, "created": False}
            raise
        return {
            "topic": topic,
            "created": not validate_only,
            "topic_id": uuid_text(made.topic_id),
            "partitions": made.num_partitions,
            "replication_factor": made.replication_factor,
        }

    result = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(result)
    elif result["created"]:
        typer.echo(f"Created topic {topic}.")
    else:
        typer.echo(f"Topic {topic} could be created." if validate_only else f"Topic {topic} exists already.")


@app.command("list")
def list_topics(
    pattern: PatternArgument = None,
    topic: TopicOption = None,
    exclude_internal: ExcludeInternalOption = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the names of topics."""
    topic = at_most_one_topic(pattern, topic)

    async def work(cluster: Cluster) -> list[str]:
        found = matching((await cluster.metadata()).topics, topic, exclude_internal)
        return [each.name or "" for each in found]

    names = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(names)
        return
    for name in names:
        typer.echo(name)


@app.command("describe")
def describe(
    pattern: PatternArgument = None,
    topic: TopicOption = None,
    exclude_internal: ExcludeInternalOption = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with a copy out of sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with settings of their own, not partitions.")
    ] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the partitions, replicas and settings of topics."""
    topic = at_most_one_topic(pattern, topic)

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        found = matching((await cluster.metadata()).topics, topic, exclude_internal)
        if topic is not None and not found:
            raise missing(topic)
        return await _described(cluster, found)

    topics = administer(target(bootstrap_server, command_config), work)
    if overrides:
        topics = [each for each in topics if each["configs"]]
    only_troubled = under_replicated or unavailable
    if only_troubled:
        topics = _with_troubles(topics, unavailable, under_replicated)
    if as_json:
        print_json(topics)
    else:
        _print_topics(topics, heads=not only_troubled, partitions=not overrides)


@app.command("alter")
def alter(
    name: TopicArgument = None,
    topic: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="The new number; it can only grow.", min=1, max=INT32_MAX)
    ] = None,
    replica_assignment: AssignmentOption = "",
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing where it does not exist.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add partitions to a topic. Settings are changed by `odradek configs alter`."""
    topic = one_topic(name, topic)
    if partitions is None:
        raise CliError("say how many partitions it shall have: --partitions", code=USAGE)
    assignment = _assignment(replica_assignment)

    async def work(cluster: Cluster) -> bool:
        from odradek.client.admin import create_partitions

        (found,) = (await cluster.metadata([topic])).topics
        if found.error_code:
            if if_exists:
                return False
            raise missing(topic)
        # As in Kafka's tool, the assignment is of all partitions, and those that exist stay as they are.
        new = assignment[len(found.partitions) :]
        await create_partitions(cluster, topic, partitions, assignment=new)
        return True

    done = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"topic": topic, "altered": done, "partitions": partitions})
    else:
        typer.echo(f"Topic {topic} has {partitions} partitions." if done else f"Topic {topic} does not exist.")


@app.command("delete")
def delete(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names, or regular expressions for whole names.", autocompletion=topic_names),
    ] = None,
    topic: TopicsOption = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing where none exists.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete topics with all their records."""
    wanted = some_topics(names, topic)

    async def work(cluster: Cluster) -> list[str]:
        from odradek.client.admin import delete_topic

        topics = (await cluster.metadata()).topics
        there: dict[str, None] = {}
        for pattern in wanted:
            found = matching(topics, pattern)
            if not found and not if_exists:
                raise missing(pattern)
            there.update(dict.fromkeys(each.name or "" for each in found))
        for name in there:
            await delete_topic(cluster, name)
        return list(there)

    deleted = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"deleted": deleted})
        return
    for name in deleted:
        typer.echo(f"Deleted topic {name}.")


def matching(
    topics: Sequence[MetadataResponseTopic], pattern: str | None, exclude_internal: bool = False
) -> list[MetadataResponseTopic]:
    """The topic with this name; if there is none, the topics whose whole name matches the expression.

    Raises:
        CliError: no name and no regular expression.
    """
    by_name = {each.name or "": each for each in topics if not (exclude_internal and each.is_internal)}
    if pattern is None:
        names = sorted(by_name)
    elif pattern in by_name:
        names = [pattern]
    else:
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise CliError(
                f"--topic {pattern}: no such topic, and no regular expression: {error}", code=BAD_CONFIG
            ) from None
        names = sorted(filter(expression.fullmatch, by_name))
    return [by_name[name] for name in names]


def _with_troubles(topics: list[dict[str, Any]], unavailable: bool, under_replicated: bool) -> list[dict[str, Any]]:
    """Topics with the partitions that have one of the troubles, where there are any."""
    for each in topics:
        each["partitions"] = [one for one in each["partitions"] if _is_troubled(one, unavailable, under_replicated)]
    return [each for each in topics if each["partitions"]]


def _is_troubled(partition: Mapping[str, Any], unavailable: bool, under_replicated: bool) -> bool:
    """Whether a partition has one of the troubles that are asked for."""
    if unavailable and partition["leader"] is None:
        return True
    return under_replicated and len(partition["isr"]) < len(partition["replicas"])


def missing(topic: str) -> CliError:
    """The error for a topic that does not exist."""
    return CliError(f"topic {topic} does not exist; `odradek topics list` shows those that do", code=NOT_FOUND)


async def _described(cluster: Cluster, topics: Sequence[MetadataResponseTopic]) -> list[dict[str, Any]]:
    from odradek.cli.compaction import request_states
    from odradek.client.admin import ResourceType, describe_configs

    by_name = {each.name or "": each for each in topics}
    results = await describe_configs(cluster, ResourceType.TOPIC, list(by_name))
    settings = {result.resource_name: result.configs for result in results}
    states = await request_states(
        cluster, [each for name, each in by_name.items() if _is_compacted(settings.get(name, ()))]
    )
    return [_topic(each, settings.get(name, ()), states) for name, each in by_name.items()]


def _topic(
    topic: MetadataResponseTopic,
    settings: Iterable[DescribeConfigsResourceResult],
    states: Mapping[tuple[str, int], dict[str, Any]],
) -> dict[str, Any]:
    from odradek.raft.quorum_state import uuid_text

    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replica_nodes) if topic.partitions else 0,
        "configs": {entry.name: entry.value for entry in settings if entry.config_source == DYNAMIC_TOPIC},
        "partitions": [
            _partition(one) | states.get((topic.name or "", one.partition_index), {})
            for one in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        ],
    }


def _is_compacted(settings: Iterable[DescribeConfigsResourceResult]) -> bool:
    return any(entry.name == "cleanup.policy" and "compact" in (entry.value or "") for entry in settings)


# Kafka's ConfigSource of a setting that the topic itself has.
DYNAMIC_TOPIC = 1


def _partition(partition: MetadataResponsePartition) -> dict[str, Any]:
    return {
        "partition": partition.partition_index,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replica_nodes,
        "isr": partition.isr_nodes,
        "offline_replicas": partition.offline_replicas,
    }


def _print_topics(topics: list[dict[str, Any]], *, heads: bool, partitions: bool) -> None:
    if heads:
        _print_heads(topics)
    if heads and partitions:
        typer.echo("")
    if partitions:
        _print_partitions(topics)


def _print_heads(topics: list[dict[str, Any]]) -> None:
    rows = []
    for each in topics:
        configs = ",".join(f"{key}={value}" for key, value in sorted(each["configs"].items())) or "-"
        rows.append([each["topic"], each["topic_id"], each["partition_count"], each["replication_factor"], configs])
    print_table(["TOPIC", "TOPIC-ID", "PARTITIONS", "REPLICATION-FACTOR", "CONFIGS"], rows)


def _print_partitions(topics: list[dict[str, Any]]) -> None:
    from odradek.cli.compaction import compaction_text

    dirty = any("compaction" in one for each in topics for one in each["partitions"])
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "OFFLINE", *(["COMPACTION"] if dirty else [])],
        [
            [
                each["topic"],
                one["partition"],
                "none" if one["leader"] is None else one["leader"],
                _ids(one["replicas"]),
                _ids(one["isr"]),
                _ids(one["offline_replicas"]) or "-",
                *([compaction_text(one.get("compaction"))] if dirty else []),
            ]
            for each in topics
            for one in each["partitions"]
        ],
    )


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))


def _assignment(text: str) -> list[list[int]]:
    if not text:
        return []
    try:
        assignment = [list(map(int, one.split(":"))) for one in text.split(",")]
    except ValueError:
        raise CliError(f"--replica-assignment {text}: must be as 1:2,2:3", code=BAD_CONFIG) from None
    if any(not 0 <= broker <= INT32_MAX for one in assignment for broker in one):
        raise CliError(f"--replica-assignment {text}: a broker's id is from 0 to {INT32_MAX}", code=BAD_CONFIG)
    if any(len(set(one)) < len(one) for one in assignment) or len(set(map(len, assignment))) > 1:
        raise CliError(f"--replica-assignment {text}: as many different brokers for each partition", code=BAD_CONFIG)
    return assignment
