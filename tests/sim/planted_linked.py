"""Bugs to plant in links and the mirrors that they keep; the world of `linked` finds them."""

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
        "return floor_of(state.configs.get(_ALL_BROKERS, {}), topic)",
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
        "link.service:LinkRun._hear_nothing",
        "mirrored.follow_start()",
        "pass",
        "what followers had not fetched then is never deleted",
    ),
    Bug(
        "a mirror's leader without epochs refuses its followers",
        "replica.partition:Partition.diverges",
        "if self.is_mirror and fetch_offset == self.log.log_end_offset:",
        "if False:",
        "they are not in sync until a record comes",
    ),
    Bug(
        "the end of a mirror forgets no producers",
        "log.producer_state:ProducerState.forget_ended",
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
)

# A seed of the world that catches it: the first one, for those below 40.
CAUGHT_BY_SEED = {
    "a mirror's new leader notes its own epoch": 1,
    "leader epochs stay below a floor that was raised": 1,
    "an added partition begins below the floor": 2,
    "the start of the source's log is not followed": 2,
    "the source's start is followed when it is news": 3,
    "a mirror's leader without epochs refuses its followers": 23,
    "the end of a mirror forgets no producers": 43,
    "each leader ends a mirror once more": 43,
}
