"""`odradek links failback`: topics become mirrors of the topics that were promoted from them in another cluster.

The command shows the records to be cut before it begins. `odradek.admin.link_failbacks` has the steps. After an
interruption the same command continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.cli.confirmation import confirm
from odradek.cli.connect import Target, administer, cluster_at
from odradek.cli.errors import FAILED, NOT_FOUND, UNREACHABLE, USAGE, CliError
from odradek.cli.output import print_json, print_table, say, say_on_stderr

if TYPE_CHECKING:
    from odradek.admin.link_failbacks import FailbackPlan, PartitionKey
    from odradek.client.cluster import Cluster
    from odradek.settings.links import Link

T = TypeVar("T")
Rows = list[dict[str, Any]]
_SHOWN = ("topic", "partition", "end", "kept", "cut", "starts_over")


def fail_back(
    name: str, topics: list[str], here: Target, source_properties: dict[str, str], *, yes: bool, as_json: bool
) -> None:
    """
    Args:
        source_properties: client settings for connections to the link's source.
    Raises:
        CliError, ApiError.
    """
    from odradek.admin import link_failbacks as steps

    wanted = sorted(set(topics))
    with _errors():
        plan = administer(here, lambda cluster: _plan(cluster, name, wanted, source_properties))
        if plan.changes:
            if not as_json:
                _show(plan.rows)
            confirm(_question(plan), yes=yes)
            administer(here, lambda cluster: _begin(cluster, plan, source_properties))
        left = plan.topics
        cuts: dict[PartitionKey, int] = {}
        groups: Rows = []
        if left:
            cuts = administer(here, lambda cluster: steps.cuts(cluster, name, left, say_on_stderr))
            groups = administer(here, lambda cluster: steps.move_groups(cluster, cuts))
            administer(here, lambda cluster: _check_source(cluster, plan, source_properties))
            administer(here, lambda cluster: steps.end(cluster, name, left))
        found = administer(here, lambda cluster: steps.report(cluster, name, wanted))
    if as_json:
        rows = _cut_rows(cuts, found)
        print_json({"link": name, "done": "failback", "topics": wanted, "partitions": rows, "groups": groups})
        return
    _report(name, wanted, found, groups)


@contextmanager
def _errors() -> Iterator[None]:
    """Convert the errors of the steps to errors of the command."""
    from odradek.admin.link_facts import UnknownLinkError
    from odradek.admin.link_failbacks import UnfinishedError, UnknownTopicError
    from odradek.admin.plan import PlanError

    try:
        yield
    except UnknownLinkError as error:
        raise CliError(
            f"{error}; see `odradek links list`. An old source that is Apache Kafka has no links: "
            "delete its topic, and copy it again",
            code=NOT_FOUND,
        ) from None
    except UnknownTopicError as error:
        raise CliError(str(error), code=NOT_FOUND) from None
    except UnfinishedError as error:
        raise CliError(str(error), code=FAILED) from None
    except PlanError as error:
        raise CliError(str(error), code=USAGE) from None


async def _with_source(
    link: Link, source_properties: dict[str, str], advice: str, work: Callable[[Cluster], Awaitable[T]]
) -> T:
    """The result of `work` with the link's source. Raises CliError with advice if the source does not respond."""
    from odradek.client.connection import RequestTimeoutError, UnreachableError

    try:
        async with cluster_at(Target(link.bootstrap_servers, source_properties))() as source:
            return await work(source)
    except (UnreachableError, RequestTimeoutError) as error:
        raise CliError(f"the source {link.bootstrap_servers}: {error}; {advice}", code=UNREACHABLE) from None


async def _plan(cluster: Cluster, name: str, topics: list[str], source_properties: dict[str, str]) -> FailbackPlan:
    from odradek.admin.link_failbacks import compare, known_plan

    plan, begun = await known_plan(cluster, name, topics)
    if begun:
        advice = "name how to reach it from here with --source-config"
        await _with_source(plan.link, source_properties, advice, lambda source: compare(cluster, source, plan, begun))
    return plan


async def _begin(cluster: Cluster, plan: FailbackPlan, source_properties: dict[str, str]) -> None:
    from odradek.admin.link_failbacks import begin

    advice = "nothing was begun; give the command again"
    await _with_source(plan.link, source_properties, advice, lambda source: begin(cluster, source, plan))


async def _check_source(cluster: Cluster, plan: FailbackPlan, source_properties: dict[str, str]) -> None:
    from odradek.admin.link_failbacks import check_source

    advice = "`odradek links failback` once more goes on"
    await _with_source(plan.link, source_properties, advice, lambda source: check_source(cluster, source, plan))


def _show(rows: Rows) -> None:
    print_table(
        [name.upper().replace("_", "-") for name in _SHOWN],
        [["-" if row[name] is None else str(row[name]).lower() for name in _SHOWN] for row in rows],
    )
    if any(row["starts_over"] for row in rows):
        say("A partition that starts over has no records in common: its log is written to a file, and mirrored again.")
    say("Records are written to files beside the logs before they are cut, those produced until then included.")


def _question(plan: FailbackPlan) -> str:
    topics = ", ".join(sorted({row["topic"] for row in plan.rows}))
    count = sum(row["cut"] for row in plan.rows)
    what = f"{count} offsets that only this cluster has are cut" if count else "nothing that is known of is cut"
    return f"make {topics} mirrors of {plan.link.bootstrap_servers}? ({what})"


def _report(name: str, topics: list[str], found: Rows, groups: Rows) -> None:
    from odradek.cli.link_state import cut_line

    for row in found:
        if row["cut"]:
            say(cut_line(row))
    for each in groups:
        where = f"{each['group']} at {each['topic']}-{each['partition']}"
        if each["moved"]:
            say(f"{where}: set from {each['offset']} to {each['to']}")
        else:
            say_on_stderr(f"{where}: has members, and stays at {each['offset']}; they are reset by their own settings")
    say(f"{name}: failed back {', '.join(topics)}")


def _cut_rows(cuts: dict[PartitionKey, int], found: Rows) -> Rows:
    known = {(row["topic"], row["partition"]): row["cut"] or {} for row in found}
    every = {key: each.get("offset") for key, each in known.items()} | cuts
    return [
        {
            "topic": topic,
            "partition": number,
            "offset": offset,
            **{key: known.get((topic, number), {}).get(key) for key in ("broker", "file", "bytes")},
        }
        for (topic, number), offset in sorted(every.items())
    ]
