"""Plans for changes of mirrors: pause, resume, promote, fail over."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.admin import link_ends
from odradek.admin.link_facts import Row, link_of_cluster, set_mirror_states
from odradek.admin.plan import Plan, PlanError
from odradek.client.cluster import Cluster
from odradek.settings.links import Link, MirrorState

SHOWN_PARTITIONS = 200


async def plan_state(cluster: Cluster, name: str, topics: Sequence[str], state: MirrorState) -> Plan:
    """Pause or resume mirrors. Raises PlanError, ApiError."""
    link = await link_of_cluster(cluster, name)
    wanted = _mirrors(link, topics)
    changed = [topic for topic in wanted if link.mirrors[topic].state is not state]
    if not changed:
        raise PlanError(f"{', '.join(wanted) or 'no mirror'}: {state} already")
    if state is MirrorState.PAUSED:
        verb, what = "Pause", "is fetched no more. It stays here, read-only, and falls behind its source."
    else:
        verb, what = "Resume", f"is fetched again from {link.bootstrap_servers}, from where it ended here."
    lines = tuple(f"{topic} {what}" for topic in changed)
    return Plan(f"{verb} {_names(changed)}", lines, lambda to: set_mirror_states(to, name, changed, state))


async def plan_end(cluster: Cluster, name: str, topics: Sequence[str], *, is_reached: bool) -> Plan:
    """Promote mirrors to topics of this cluster; this cannot be undone.

    Args:
        is_reached: the source must respond. Otherwise mirrors without a topic are left out, unless they are named.
    Raises:
        PlanError, ApiError.
    """
    link = await link_of_cluster(cluster, name)
    asked = _mirrors(link, topics)
    rows = await link_ends.missing(cluster, link, asked, leaves_out=not is_reached and not topics)
    if is_reached:
        link_ends.check_reached(rows)
    names = [topic for topic in asked if any(row["topic"] == topic for row in rows)]
    if not names:
        raise PlanError(f"{name} has no mirror here that could be promoted")
    lines = [
        f"{_names(names)}: topics of this cluster from then on; this cannot be undone; {link_ends.missing_text(rows)}.",
        "Stop the producers of the source first: they write to another topic after the promotion."
        if is_reached
        else "No request is sent to the source: records that it got after its last known end are not known here.",
        *(f"{topic} was never created here, and is left out." for topic in asked if topic not in names),
        *map(_partition_in_words, rows[:SHOWN_PARTITIONS]),
    ]
    if len(rows) > SHOWN_PARTITIONS:
        lines.append(f"… and {len(rows) - SHOWN_PARTITIONS:,} partitions more")

    async def work(to: Cluster) -> None:
        if is_reached:
            link_ends.check_reached(await link_ends.missing(to, link, names, leaves_out=False))
        await link_ends.promote(to, link, names)

    return Plan(f"{'Promote' if is_reached else 'Fail over'} {_names(names)}", tuple(lines), work, typed=name)


def _mirrors(link: Link, topics: Sequence[str]) -> list[str]:
    """The named mirrors; all if `topics` is empty. Raises PlanError."""
    wanted = link_ends.chosen(link, list(topics), is_reached=False)
    for topic in wanted:
        if link.mirrors[topic].state is MirrorState.FAILBACK:
            raise PlanError(f"{topic} is not a mirror yet: `odradek links failback` goes on with it")
    return wanted


def _partition_in_words(row: Row) -> str:
    where = f"{row['topic']}-{row['partition']}"
    if row["missing"] is None:
        return f"{where}: where the source ended is not known"
    reason = f" ({row['reason']})" if row["reason"] else ""
    ends = f"ends here at {row['end']:,}, at the source at {row['source_end']:,}"
    return f"{where}: {ends}, {row['missing']:,} missing{reason}"


def _names(topics: Sequence[str]) -> str:
    shown = ", ".join(topics[:5])
    return f"{shown} and {len(topics) - 5:,} more" if len(topics) > 5 else shown
