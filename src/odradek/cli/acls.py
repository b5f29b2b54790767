"""`odradek acls`: manage permissions, and explain decisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.acl_decisions import Question, answered, answers_of, explained
from odradek.cli.acl_rules import (
    Resources,
    check_principals,
    described,
    description_of,
    entries_of,
    filters_of,
    operations_of,
    requested_resources,
    resources_of,
    row,
)
from odradek.cli.confirmation import confirm
from odradek.cli.connect import DEFAULT_BOOTSTRAP, BootstrapOption, CommandConfigOption, Target, administer, target
from odradek.cli.errors import NOT_FOUND, USAGE, CliError
from odradek.cli.option_groups import with_option_groups
from odradek.cli.output import JsonOption, print_json, print_table, say

if TYPE_CHECKING:
    from odradek.client.cluster import Cluster
    from odradek.metadata.model import Acl
    from odradek.protocol.messages.delete_acls_request import DeleteAclsFilter

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, add and remove ACLs; explain a decision.")

_HEADINGS = ["PERMISSION", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "PATTERN", "NAME"]
_NO_SUCH = "there is no such ACL; `odradek acls list` shows those that there are"


@dataclass(frozen=True)
class Named:
    """The resources of a command."""

    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic; may be repeated.")] = None
    group: Annotated[list[str] | None, typer.Option("--group", help="A consumer group; may be repeated.")] = None
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", help="A transactional id; may be repeated.")
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False
    delegation_token: Annotated[
        list[str] | None, typer.Option("--delegation-token", help="The id of a delegation token; may be repeated.")
    ] = None
    user: Annotated[list[str] | None, typer.Option("--user", help="A user, as User:name; may be repeated.")] = None

    @property
    def resources(self) -> Resources:
        return resources_of(
            self.topic, self.group, self.transactional_id, self.delegation_token, self.user, cluster=self.cluster
        )


@dataclass(frozen=True)
class Rules:
    """Principals, permissions and hosts."""

    allow_principal: Annotated[
        list[str] | None,
        typer.Option("--allow-principal", help="Allow a principal, as User:name; User:* is all."),
    ] = None
    deny_principal: Annotated[list[str] | None, typer.Option("--deny-principal", help="Deny a principal.")] = None
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", help="READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, …, ALL; may be repeated."),
    ] = None
    prefixed: Annotated[
        bool, typer.Option("--prefixed", help="All resources whose names begin with the one given.")
    ] = False
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", help="From which address, or network as 10.0.0.0/8; from everywhere where none is given."
        ),
    ] = None

    @property
    def principals(self) -> list[str]:
        return [*(self.allow_principal or ()), *(self.deny_principal or ())]

    @property
    def match_everything(self) -> bool:
        """Whether the options, as a filter, match all ACLs."""
        return not (self.principals or self.operation or self.host)


@app.command("list")
@with_option_groups
def list_acls(
    named: Named,
    principal: Annotated[str | None, typer.Option("--principal", help="Only those of one, as User:name.")] = None,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show all ACLs, or those that concern some resources: patterns that match them included."""
    found = _found(named.resources.named, principal, bootstrap_server, command_config)
    if as_json:
        print_json([described(acl) for acl in found])
    else:
        print_table(_HEADINGS, [row(acl) for acl in found])


@app.command("add")
@with_option_groups
def add(
    rules: Rules,
    named: Named,
    producer: Annotated[
        bool, typer.Option("--producer", help="The operations of a producer on the topics and transactional ids.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="The operations of a consumer on the topics and groups.")
    ] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add ACLs; existing ones stay."""
    pairs = requested_resources(named.resources, rules.operation, producer=producer, consumer=consumer)
    new = entries_of(pairs, rules.allow_principal, rules.deny_principal, rules.host, prefixed=rules.prefixed)

    async def work(cluster: Cluster) -> None:
        from odradek.client.acls import create_acls
        from odradek.metadata.acl_messages import acl_creation

        await create_acls(cluster, [acl_creation(acl) for acl in new])

    administer(target(bootstrap_server, command_config), work)
    _report("added", new, as_json=as_json)


@app.command("remove")
@with_option_groups
def remove(
    rules: Rules,
    named: Named,
    every: Annotated[bool, typer.Option("--all", help="All ACLs of the cluster.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", "--force", help="Do not ask.")] = False,
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the ACLs that match all options; an option that is not given matches everything.

    Where no resource is named it asks before it does so.
    """
    names_resources = bool(named.resources.named)
    check_principals(rules.principals)
    if rules.match_everything and not (names_resources or every):
        raise CliError("name what to remove, as --topic or --allow-principal, or give --all", code=USAGE)
    filters = _filters(rules, named.resources)
    where = target(bootstrap_server, command_config)
    if not (names_resources or yes):
        _confirm_removal(filters, where)

    async def work(cluster: Cluster) -> list[Acl]:
        from odradek.client.acls import delete_acls
        from odradek.metadata.model import acl_of

        return [acl_of(each) for each in await delete_acls(cluster, filters)]

    gone = administer(where, work)
    if not gone:
        raise CliError(_NO_SUCH, code=NOT_FOUND)
    _report("removed", gone, as_json=as_json)


def _filters(rules: Rules, resources: Resources) -> list[DeleteAclsFilter]:
    from odradek.metadata.acls import PatternType

    pattern = PatternType.LITERAL if resources.named else PatternType.ANY
    if rules.prefixed:
        pattern = PatternType.PREFIXED
    allowed, denied = rules.allow_principal, rules.deny_principal
    return filters_of(resources.named, pattern, allowed, denied, rules.operation, rules.host)


def _confirm_removal(filters: list[DeleteAclsFilter], where: Target) -> None:
    """Print how many ACLs would be removed, and ask for confirmation."""

    async def work(cluster: Cluster) -> set[Acl]:
        from odradek.client.acls import describe_acls
        from odradek.metadata.acl_messages import acls_from_description

        return {
            acl for each in filters for acl in acls_from_description(await describe_acls(cluster, description_of(each)))
        }

    found = administer(where, work)
    if not found:
        raise CliError(_NO_SUCH, code=NOT_FOUND)
    confirm(f"ACLs of the cluster that match: {len(found)}. Remove them?", yes=False)


@app.command("why")
@with_option_groups
def why(
    principal: Annotated[str, typer.Option("--principal", help="The principal, as User:name.")],
    operation: Annotated[str, typer.Option("--operation", help="READ, WRITE, …")],
    named: Named,
    host: Annotated[str, typer.Option("--host", help="From which address.")] = "127.0.0.1",
    bootstrap_server: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print whether a client may do something, and which rule decides.

    Brokers with other super.users, or another allow.everyone.if.no.acl.found, answer on lines of their own.
    """
    resources = named.resources.named
    if len(resources) != 1:
        raise CliError("name one resource: --topic, --group, --transactional-id, --cluster, …", code=USAGE)
    ((resource_type, name),) = resources
    check_principals([principal])
    (asked,) = operations_of([operation])
    question = Question(principal, host, asked, resource_type, name)
    answers = answers_of(question, target(bootstrap_server, command_config))
    if as_json:
        print_json(answered(answers))
        return
    for answer in answers:
        of = f"{answer.brokers_text}: " if len(answers) > 1 else ""
        say(f"{of}{'allowed' if answer.decision.allowed else 'denied'}: {explained(question, answer)}")


def _found(
    named: tuple[tuple[int, str], ...], principal: str | None, bootstrap_server: str, command_config: Path | None
) -> list[Acl]:
    """The ACLs of these resources, of one principal or of all, each once."""
    from odradek.metadata.acls import AclOperation, AclResourceType, PatternType, PermissionType
    from odradek.protocol.messages.describe_acls_request import DescribeAclsRequest

    async def work(cluster: Cluster) -> list[Acl]:
        from odradek.client.acls import describe_acls
        from odradek.metadata.acl_messages import acls_from_description

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
            found |= dict.fromkeys(acls_from_description(await describe_acls(cluster, request)))
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
