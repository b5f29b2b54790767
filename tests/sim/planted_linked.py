"""Bugs to plant in links, the mirrors that they keep, and failbacks; the world of `linked` finds them."""

from __future__ import annotations

from tests.sim.planted import Bug

LINK_BUGS = (
    Bug(
        "a mirror's new leader notes its own epoch",
        "replica.leadership:_begin_leadership",
        "if not partition.is_mirror and not partition.first_own_epoch:",
        "if True:",
        "the source's batches are older than an epoch that the mirror counts",
    ),
    Bug(
        "leader epochs stay below a floor that was raised",
        "controller.mirrors:raised_epochs",
        "if partition.leader_epoch < floor:",
        "if False:",
        "nothing of the source's next leader is mirrored",
    ),
    Bug(
        "an added partition begins below the floor",
        "controller.mirrors:first_leader_epoch",
        "return floor_of(mirror_settings(state, topic), topic)",
        "return 0",
        "a partition that is added after elections is not mirrored",
    ),
    Bug(
        "the start of the source's log is not followed",
        "link.mirroring:MirroredPartition.follow_start",
        "if start > log.log_start_offset:",
        "if False:",
        "what was deleted at the source is read from the mirror",
    ),
    Bug(
        "the source's start is followed when it is news",
        "link.service:LinkRun._confirm_unchanged",
        "mirrored.follow_start()",
        "pass",
        "what followers had not fetched then is never deleted",
    ),
    Bug(
        "the end of a mirror forgets no producers",
        "log.producer_state:ProducerState.remove_ended",
        "if entry.transaction_start != NO_OFFSET",
        "if True",
        "a producer with an id of the source's is taken for the source's",
    ),
    Bug(
        "each leader ends a mirror once more",
        "replica.promotion:has_ended",
        "if not (each.is_control and each.has_producer_id):",
        "if False:",
        "producers of this cluster are forgotten",
    ),
    Bug(
        "a failback keeps all of an epoch that both have",
        "link.agreement:agree",
        "return Agreement(min(own, end))",
        "return Agreement(own)",
        "what the old source wrote since stays below what the new one wrote",
    ),
    Bug(
        "what is cut is not written to a file",
        "link.failback:Failback._cut",
        "if first < end:",
        "if False:",
        "what only the old source had is lost in silence",
    ),
    Bug(
        "a failback waits for no replica",
        "replica.failback:replicas_not_truncated",
        "if follower.log_end_offset < 0",
        "if False",
        "one that was not cut goes on behind its own records",
    ),
    Bug(
        "groups are not set back to the cut",
        "admin.link_failbacks:_move_groups",
        "if not beyond:",
        "if True:",
        "a group skips what the new source has there",
    ),
    Bug(
        "a failback that is given up aborts what began here",
        "replica.promotion:_own_from",
        "if partition.own_from < 0",
        "if True",
        "what its coordinator commits is not read",
    ),
)

# A seed of the world that catches the bug, not always the first one. Few seeds have a failback that is given up, or a
# replica that is late for the cut: `tests/unit/replica/test_promotion.py` and `test_failback.py` have these two bugs.
CAUGHT_BY_SEED = {
    "a mirror's new leader notes its own epoch": 1,
    "leader epochs stay below a floor that was raised": 1,
    "an added partition begins below the floor": 2,
    "the start of the source's log is not followed": 9,
    "the source's start is followed when it is news": 9,
    "the end of a mirror forgets no producers": 25,
    "each leader ends a mirror once more": 12,
    "a failback keeps all of an epoch that both have": 12,
    "what is cut is not written to a file": 4,
    "groups are not set back to the cut": 4,
}
