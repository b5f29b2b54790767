"""`odradek acls`: who may do what, and which rule decides it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.acl_rules import (
    check_principals,
    described,
    entries_of,
    filters_of,
    flat,
    operations_of,
    resources_of,
    row,
    wanted_of,
)
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, Target, administer, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.output import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.metadata.model import Acl
    from odradek.security.acl.authorizer import AclDecision

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, add and remove ACLs; explain a decision.")

_HEADINGS = ["PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "PATTERN", "NAME"]
# Operations and types of resources (numbers of `metadata.acls`) that the same operation on the cluster allows as well:
# CREATE and DELETE of topics, DESCRIBE of groups, which a listing of groups asks for.
_ALSO_BY_CLUSTER = {(5, 2), (6, 2), (8, 3)}
_REASONS = {
    "super user": "{principal} is one of super.users",
    "no acl": "no ACL names {kind} {name}, and allow.everyone.if.no.acl.found={everyone}",
    "no match": "of the ACLs of {kind} {name} none allows {operation} to {principal} from {host}",
}

TopicOption = Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic; may be repeated.")]
GroupOption = Annotated[list[str] | None, typer.Option("--group", help="A consumer group; may be repeated.")]
IdOption = Annotated[list[str] | None, typer.Option("--transactional-id", help="A transactional id; may be repeated.")]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
TokenOption = Annotated[
    list[str] | None, typer.Option("--delegation-token", help="The id of a delegation token; may be repeated.")
]
UserOption = Annotated[list[str] | None, typer.Option("--user", help="A user, as User:name; may be repeated.")]
PrefixedOption = Annotated[bool, typer.Option("--prefixed", help="All resources whose names begin with the one given.")]
OperationOption = Annotated[
    list[str] | None,
    typer.Option("--operation", help="READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, …, ALL; may be repeated."),
]
AllowOption = Annotated[
    list[str] | None, typer.Option("--allow-principal", help="Who is allowed it, as User:name; User:* is everybody.")
]
DenyOption = Annotated[list[str] | None, typer.Option("--deny-principal", help="Who is denied it.")]
HostOption = Annotated[
    list[str] | None,
    typer.Option("--host", help="From which address, or network as 10.0.0.0/8; from everywhere where none is given."),
]


@app.command("list")
def list_acls(
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    delegation_token: TokenOption = None,
    user: UserOption = None,
    principal: Annotated[str | None, typer.Option("--principal", help="Only those of one, as User:name.")] = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all ACLs, or those that concern some resources: patterns that match them included."""
    named = resources_of(topic, group, transactional_id, delegation_token, user, cluster=cluster).named
    found = _found(named, principal, bootstrap_server, command_config)
    if as_json:
        print_json([described(acl) for acl in found])
    else:
        print_table(_HEADINGS, [row(acl) for acl in found])


@app.command("add")
def add(
    allow_principal: AllowOption = None,
    deny_principal: DenyOption = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    delegation_token: TokenOption = None,
    user: UserOption = None,
    prefixed: PrefixedOption = False,
    host: HostOption = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer needs of the topics and transactional ids.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs of the topics and groups.")
    ] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add ACLs; those that exist stay."""
    resources = resources_of(topic, group, transactional_id, delegation_token, user, cluster=cluster)
    pairs = wanted_of(resources, operation, producer=producer, consumer=consumer)
    new = entries_of(pairs, allow_principal, deny_principal, host, prefixed=prefixed)

    async def work(cluster: Cluster) -> None:
        from odradek.client.acls import create_acls
        from odradek.protocol.messages.create_acls_request import AclCreation

        await create_acls(
            cluster,
            [
                AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
                for acl in new
            ],
        )

    administer(target(bootstrap_server, command_config), work)
    _report("added", new, as_json=as_json)


@app.command("remove")
def remove(
    allow_principal: AllowOption = None,
    deny_principal: DenyOption = None,
    operation: OperationOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    delegation_token: TokenOption = None,
    user: UserOption = None,
    prefixed: PrefixedOption = False,
    host: HostOption = None,
    every: Annotated[bool, typer.Option("--all", help="All ACLs of the cluster.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the ACLs that have all that is given; what is left out may be anything."""
    from odradek.metadata.acls import PatternType

    named = resources_of(topic, group, transactional_id, delegation_token, user, cluster=cluster).named
    check_principals([*(allow_principal or ()), *(deny_principal or ())])
    if not every and not (named or allow_principal or deny_principal or operation or host):
        raise CliError("name what to remove, as --topic or --allow-principal, or give --all", code=USAGE)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL if named else PatternType.ANY
    filters = filters_of(named, pattern, allow_principal, deny_principal, operation, host)

    async def work(cluster: Cluster) -> list[Acl]:
        from odradek.client.acls import delete_acls
        from odradek.metadata.model import acl_of

        return [acl_of(each) for each in await delete_acls(cluster, filters)]

    gone = administer(target(bootstrap_server, command_config), work)
    if not gone:
        raise CliError("there is no such ACL; `odradek acls list` shows those that there are", code=NOT_FOUND)
    _report("removed", gone, as_json=as_json)


@app.command("why")
def why(
    principal: Annotated[str, typer.Option("--principal", help="Who, as User:name.")],
    operation: Annotated[str, typer.Option("--operation", help="READ, WRITE, …")],
    topic: TopicOption = None,
    group: GroupOption = None,
    transactional_id: IdOption = None,
    cluster: ClusterOption = False,
    delegation_token: TokenOption = None,
    user: UserOption = None,
    host: Annotated[str, typer.Option("--host", help="From which address.")] = "127.0.0.1",
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a client may do something, and which rule decides."""
    from odradek.metadata.acls import CLUSTER_NAME, AclResourceType

    named = resources_of(topic, group, transactional_id, delegation_token, user, cluster=cluster).named
    if len(named) != 1:
        raise CliError("name one resource: --topic, --group, --transactional-id, --cluster, …", code=USAGE)
    ((resource_type, name),) = named
    check_principals([principal])
    (asked,) = operations_of([operation])
    where = target(bootstrap_server, command_config)
    decision, everyone = _decide(principal, host, asked, resource_type, name, where)
    if not decision.allowed and (asked, resource_type) in _ALSO_BY_CLUSTER:
        by_cluster, _ = _decide(principal, host, asked, int(AclResourceType.CLUSTER), CLUSTER_NAME, where)
        decision = by_cluster if by_cluster.allowed else decision
    kind = AclResourceType(resource_type).name
    reason = _explained(decision, principal, host, operation.upper(), kind, name, everyone)
    if as_json:
        rule = None if decision.rule is None else described(decision.rule)
        print_json({"allowed": decision.allowed, "reason": decision.reason, "rule": rule})
    else:
        say(f"{'allowed' if decision.allowed else 'denied'}: {reason}")


def _explained(
    decision: AclDecision, principal: str, host: str, operation: str, kind: str, name: str, everyone: str
) -> str:
    if decision.rule is not None:
        from odradek.security.acl.audit import rule_text

        return rule_text(decision.rule)
    return _REASONS[decision.reason].format(
        principal=principal, host=host, operation=operation, kind=kind, name=name, everyone=everyone
    )


def _decide(
    principal: str, host: str, operation: int, resource_type: int, name: str, where: Target
) -> tuple[AclDecision, str]:
    """The decision of the cluster's brokers, by its ACLs and the settings of one of them."""
    from uuid import UUID

    from odradek.metadata.acls import AclOperation, PatternType, PermissionType
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest
    from odradek.security.acl.authorizer import StandardAuthorizer
    from odradek.settings.formats import super_users

    async def work(cluster: Cluster) -> tuple[list[Acl], dict[str, str]]:
        from odradek.client.acls import describe_acls

        request = DescribeAclsRequest(
            resource_type_filter=resource_type,
            resource_name_filter=name,
            pattern_type_filter=PatternType.MATCH,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=PermissionType.ANY,
        )
        return flat(await describe_acls(cluster, request)), await _authorizer_settings(cluster)

    found, settings = administer(where, work)
    everyone = settings.get("allow.everyone.if.no.acl.found", "false")
    authorizer = StandardAuthorizer(super_users(settings.get("super.users", "")), allow_if_no_acl=everyone == "true")
    authorizer.update({UUID(int=number): acl for number, acl in enumerate(found)})
    return authorizer.why(principal, host, operation, resource_type, name), everyone


async def _authorizer_settings(cluster: Cluster) -> dict[str, str]:
    """What decides besides ACLs, as one of the brokers has it."""
    from odradek.client.admin import ResourceType, describe_cluster, describe_configs

    brokers = (await describe_cluster(cluster)).brokers
    described = await describe_configs(cluster, ResourceType.BROKER, [str(each.broker_id) for each in brokers[:1]])
    return {config.name: config.value or "" for each in described for config in each.configs}


def _found(
    named: tuple[tuple[int, str], ...], principal: str | None, bootstrap_server: str, command_config: Path | None
) -> list[Acl]:
    """The ACLs that concern any of the resources, of one principal or of all, each once."""
    from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest

    async def work(cluster: Cluster) -> list[Acl]:
        from odradek.client.acls import describe_acls

        found: dict[Acl, None] = {}
        for resource_type, name in named or ((AclResourceType.ANY, None),):
            request = DescribeAclsRequest(
                resource_type_filter=resource_type,
                resource_name_filter=name,
                pattern_type_filter=PatternType.ANY if name is None else PatternType.MATCH,
                principal_filter=principal,
                host_filter=None,
                operation=AclOperation.ANY,
                permission_type=PermissionType.ANY,
            )
            found |= dict.fromkeys(flat(await describe_acls(cluster, request)))
        return list(found)

    found = administer(target(bootstrap_server, command_config), work)
    return sorted(found, key=lambda acl: (acl.resource_type, acl.resource_name, acl.principal, acl.operation))


def _report(what: str, acls: list[Acl], *, as_json: bool) -> None:
    if as_json:
        print_json([described(acl) for acl in acls])
        return
    from odradek.security.acl.audit import rule_text

    for acl in acls:
        say(f"{what}: {rule_text(acl)}")
