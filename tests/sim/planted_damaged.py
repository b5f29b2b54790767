"""Bugs to plant in how damage on a disk is found and repaired; the world of `damaged` finds them."""

from __future__ import annotations

from tests.sim.planted import Bug

DAMAGED = (
    Bug(
        "what was here before is not verified",
        "log.segment:Segment.read",
        "not self.verification.covers(position, length)",
        "False",
        "a reader gets a batch that the disk has changed",
    ),
    Bug(
        "no replica is asked for damaged batches",
        "replica.repair_service:RepairService.request",
        "if self._closing or partition.closed or not self._sources(partition):",
        "if True:",
        "readers are stopped at the damage for ever, though two replicas have the batches",
    ),
    Bug(
        "damage looks like the end of the log",
        "log.log:Log.read",
        "raise self.damage.report(damage.segment, damage.position, offset) from None",
        "return NOTHING",
        "readers wait for what is not fetched again",
    ),
    Bug(
        "only the frame of a batch is repaired",
        "log.repair:overwrite",
        "[chunk for chunk, _ in batches]",
        "[bytes(chunk)[:HEADER_BYTES] for chunk, _ in batches]",
        "records counted as repaired are damaged as before",
    ),
    Bug(
        "a batch too many is taken for the hole",
        "log.repair:matching_batches",
        "if each[1].base_offset < hole.end_offset",
        "if each[1].base_offset <= hole.end_offset",
        "nothing fits, and nothing is repaired",
    ),
    Bug(
        "batches are put behind the hole",
        "log.repair:overwrite",
        "hole.position + segment.open_shared().file.write_at(hole.position,",
        "hole.position + segment.open_shared().file.write_at(hole.end_position,",
        "what was sound is written over",
    ),
)
