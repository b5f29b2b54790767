"""`odradek configs`: describe and alter settings of topics, brokers and groups."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from odradek.cli.completion import group_names, topic_names
from odradek.cli.connect import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    administer,
    read_properties,
    target,
)
from odradek.cli.errors import BAD_CONFIG, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say_on_stderr

if TYPE_CHECKING:
    from odradek.client.admin import ConfigOperation, ResourceType
    from odradek.client.cluster import Cluster

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Describe and alter settings of topics, brokers and groups."
)

EntityType = Literal["topics", "brokers", "groups", "client-metrics", "broker-loggers"]
TypeOption = Annotated[
    EntityType | None, typer.Option("--entity-type", help="The type of the resource.", case_sensitive=False)
]
NameOption = Annotated[str | None, typer.Option("--entity-name", help="Name of the topic or group, id of the broker.")]
DefaultOption = Annotated[bool, typer.Option("--entity-default", help="The default of all brokers.")]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", help="Short for --entity-type topics --entity-name.", autocompletion=topic_names),
]
BrokerOption = Annotated[str | None, typer.Option("--broker", help="Short for --entity-type brokers --entity-name.")]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", help="Short for --entity-type groups --entity-name.", autocompletion=group_names),
]

DEFAULT_NAME = ""
# Kafka's DescribeConfigsResponse.ConfigSource.
SOURCES = {
    0: "unknown",
    1: "topic",
    2: "broker",
    3: "default of all brokers",
    4: "file of the broker",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_TYPES = {0: "unknown", 1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list"}
_TYPES |= {8: "class", 9: "password"}
_RESOURCES = {"topics": 2, "brokers": 4, "broker-loggers": 8, "client-metrics": 16, "groups": 32}
# Which source says that the resource itself was given the value.
_OWN_SOURCES = {2: (1,), 4: (2, 3), 8: (6,), 16: (7,), 32: (8,)}


@app.command("describe")
def describe(
    entity_type: TypeOption = None,
    entity_name: NameOption = None,
    entity_default: DefaultOption = False,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="All settings, not only those that were set on the entity.")
    ] = False,
    documentation: Annotated[bool, typer.Option("--documentation", help="Show what each setting does.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show settings; without a name those of every topic, broker or group."""
    kind_value, name = _entity(entity_type, entity_name, entity_default, topic, broker, group)

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        from odradek.client.admin import ResourceType, describe_configs

        kind = ResourceType(kind_value)
        names = [name] if name is not None else await _all_names(cluster, kind)
        results = await describe_configs(cluster, kind, names, synonyms=True, documentation=documentation)
        own = _OWN_SOURCES[kind_value]
        return [
            {
                "entity_type": kind.name.lower(),
                "entity_name": result.resource_name,
                "configs": [
                    _entry(entry, documentation)
                    for entry in sorted(result.configs, key=lambda entry: entry.name)
                    if show_all or entry.config_source in own
                ],
            }
            for result in results
        ]

    results = administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json(results)
        return
    rows = []
    for result in results:
        entity = f"{result['entity_type']} {result['entity_name'] or '(default)'}"
        for entry in result["configs"]:
            value = "(hidden)" if entry["sensitive"] else entry["value"]
            row = [entity, entry["name"], value, entry["source"]]
            rows.append([*row, entry["documentation"] or ""] if documentation else row)
    print_table(["ENTITY", "NAME", "VALUE", "SET BY", *(["DOCUMENTATION"] if documentation else [])], rows)
    if not rows:
        say_on_stderr("nothing is set there; --all shows every setting with its value")


@app.command("alter")
def alter(
    entity_type: TypeOption = None,
    entity_name: NameOption = None,
    entity_default: DefaultOption = False,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    add_config: Annotated[
        list[str] | None,
        typer.Option("--add-config", help="key=value[,key=[value,value]]…; lists in brackets. May be given often."),
    ] = None,
    add_config_file: Annotated[
        Path | None, typer.Option("--add-config-file", help="Properties file with settings to add.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", help="key[,key]…: back to the default. May be given often.")
    ] = None,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only say whether it could be.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set settings, or reset them to their defaults."""
    kind_value, name = _entity(entity_type, entity_name, entity_default, topic, broker, group)
    if name is None:
        raise CliError("say whose settings: --entity-name NAME, or --entity-default for all brokers", code=USAGE)
    added, deleted = _changes(add_config, add_config_file, delete_config)

    async def work(cluster: Cluster) -> None:
        from odradek.client.admin import ConfigOperation, ResourceType, alter_configs

        changes: list[tuple[str, ConfigOperation, str | None]] = [
            (key, ConfigOperation.SET, value) for key, value in added.items()
        ]
        changes += [(key, ConfigOperation.DELETE, None) for key in deleted]
        await alter_configs(cluster, ResourceType(kind_value), name, changes, validate_only=validate_only)

    administer(target(bootstrap_server, command_config), work)
    if as_json:
        print_json({"entity_name": name, "set": _shown(added), "deleted": deleted, "validate_only": validate_only})
    else:
        done = "could be changed" if validate_only else "changed"
        typer.echo(f"Settings of {name or 'all brokers'} {done}: {', '.join([*added, *deleted])}.")


def _changes(
    add_config: list[str] | None, add_config_file: Path | None, delete_config: list[str] | None
) -> tuple[dict[str, str], list[str]]:
    """The settings to set and to reset. Raises CliError if there are none, or they conflict."""
    added = read_properties(add_config_file) if add_config_file is not None else {}
    for item in add_config or []:
        added |= parse_config_list(item)
    deleted = list(filter(None, map(str.strip, ",".join(delete_config or []).split(","))))
    if not added and not deleted:
        raise CliError("nothing to change: give --add-config key=value or --delete-config key", code=USAGE)
    if both := sorted(added.keys() & set(deleted)):
        raise CliError(f"{', '.join(both)}: both added and deleted; leave one of them out", code=USAGE)
    return added, deleted


def _shown(settings: dict[str, str]) -> dict[str, str]:
    from odradek.settings.table import is_secret

    return {key: "(hidden)" if is_secret(key) else text for key, text in settings.items()}


def parse_config_list(text: str) -> dict[str, str]:
    """`a=1,b=[x,y]` → {"a": "1", "b": "x,y"}. Raises CliError."""
    found = {}
    position = 0
    # A value ends at a comma that a key follows; brackets keep the commas of a list.
    entry = re.compile(r"\s*([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*)\s*(?:,|$)")
    while position < len(text):
        match = entry.match(text, position)
        if match is None:
            raise CliError(f"--add-config {text}: must be key=value[,key=value]…; lists as key=[a,b]", code=BAD_CONFIG)
        value = match[2].strip()
        found[match[1]] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        position = match.end()
    return found


def _entity(
    entity_type: EntityType | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    group: str | None,
) -> tuple[int, str | None]:
    """The type and name of the resource; no name means all. Raises CliError."""
    short = [("topics", topic), ("brokers", broker), ("groups", group)]
    given = [(kind, name) for kind, name in short if name is not None]
    if len(given) + (entity_type is not None) != 1:
        raise CliError("say whose settings: one of --topic, --broker, --group, or --entity-type", code=USAGE)
    if entity_type is not None:
        return _RESOURCES[entity_type], _name_of(entity_type, entity_name, entity_default)
    ((kind, name),) = given
    if entity_name is not None or entity_default:
        raise CliError(f"--{kind.removesuffix('s')} names the entity; leave --entity-name out", code=USAGE)
    return _RESOURCES[kind], _name_of(kind, name)


def _name_of(kind: str, name: str | None, is_default: bool = False) -> str | None:
    """The name of a resource. Raises CliError if it is invalid for this type."""
    if is_default:
        if name is not None or kind != "brokers":
            raise CliError("--entity-default goes with --entity-type brokers and without --entity-name", code=USAGE)
        return DEFAULT_NAME
    if kind in ("brokers", "broker-loggers") and name and not name.isdigit():
        raise CliError(f"a broker's name is its id, not {name!r}; `odradek cluster brokers` shows them", code=USAGE)
    return name


async def _all_names(cluster: Cluster, kind: ResourceType) -> list[str]:
    from odradek.client.admin import ResourceType, describe_cluster, list_config_resources

    if kind is ResourceType.TOPIC:
        return sorted(topic.name or "" for topic in (await cluster.metadata()).topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        ids = [str(broker.broker_id) for broker in (await describe_cluster(cluster)).brokers]
        return [*ids, *([DEFAULT_NAME] if kind is ResourceType.BROKER else [])]
    return await list_config_resources(cluster, kind)


def _entry(entry: Any, documentation: bool) -> dict[str, Any]:
    found = {
        "name": entry.name,
        "value": entry.value,
        "source": SOURCES.get(entry.config_source, str(entry.config_source)),
        "type": _TYPES.get(entry.config_type, "unknown"),
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": SOURCES.get(synonym.source, str(synonym.source))}
            for synonym in entry.synonyms
        ],
    }
    if documentation:
        found["documentation"] = entry.documentation
    return found
