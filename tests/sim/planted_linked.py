"""Bugs to plant in links and the mirrors that they keep; the world of `linked` finds them."""

from __future__ import annotations

from tests.sim.planted import Bug

LINK_BUGS = (
    Bug(
        "batches of a later epoch than the mirror's are fetched",
        "link.mirroring:MirroredPartition.is_ready",
        "return leads and self.source_leader >= 0 and self.source_epoch <= partition.leader_epoch",
        "return leads and self.source_leader >= 0",
        "a mirror's log has epochs above those that fence its leaders",
    ),
    Bug(
        "a mirror's new leader notes its own epoch",
        "replica.leadership:_begin_leadership",
        "if len(image.replicas) > 1 and not partition.is_mirror:",
        "if len(image.replicas) > 1:",
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
        "link.mirroring:MirroredPartition.take",
        "if start > log.log_start_offset:",
        "if False:",
        "what was deleted at the source is read from the mirror",
    ),
)

# The first seed of the world that catches it.
CAUGHT_BY_SEED = {
    "batches of a later epoch than the mirror's are fetched": 1,
    "a mirror's new leader notes its own epoch": 1,
    "leader epochs stay below a floor that was raised": 2,
    "an added partition begins below the floor": 4,
    "the start of the source's log is not followed": 1,
}
