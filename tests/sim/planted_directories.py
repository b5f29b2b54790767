"""Bugs to plant in moves between log directories and in what goes on when one fails; see `directories`."""

from __future__ import annotations

from tests.sim.planted import Bug
from tests.support.planted.log_bugs import IN_MOVES

_DRIVER = "replica.log_dir_driver:LogDirMoves."

DIRECTORY_BUGS = (
    *IN_MOVES,
    Bug(
        "a copy takes the log's place before it has all",
        _DRIVER + "_promote",
        "if self._is_current(move) and move.finish(self._clock.now_ms()):",
        "if self._is_current(move):",
        "what came last is not in the log any more",
    ),
    Bug(
        "a move is not reported to the controller",
        _DRIVER + "_promote",
        "self._report(move.partition, move.future.log_dir, confirmed)",
        "confirmed()",
        "a directory that fails is not the one where the controller has the replica",
    ),
    Bug(
        "the copy knows no producers",
        "log.future:inherit_state_from",
        "log.producers = other.producers",
        "log.producers = type(log.producers)()",
        "a batch that is sent again is written again",
    ),
    Bug(
        "a move of long ago goes on after a cut",
        "replica.log_dir_move:LogDirMove.begin_read",
        "if self._cut_count != source.truncation_count or not _is_within(future, source):",
        "if not _is_within(future, source):",
        "the copy keeps records that an election removed from the log, before those that replaced them",
    ),
    Bug(
        "the log that was replaced keeps its name",
        _DRIVER + "_swap",
        "self._manager.removal.discard(source, after_names_in=partition.log.log_dir)",
        "pass",
        "two logs bear one name, and a start chooses",
    ),
    Bug(
        "a move that is given up leaves its copy",
        _DRIVER + "cancel",
        "self._manager.futures.delete((partition.topic, partition.partition_id))",
        "self._manager.futures.remove((partition.topic, partition.partition_id))",
        "copies that are not wanted fill the disk, until a start goes on with them",
    ),
    Bug(
        "a partition goes on with the log that was replaced",
        _DRIVER + "_swap",
        "partition.switch_log(self._manager.futures.replace(key))",
        "self._manager.futures.replace(key)",
        "what is written is in a directory that will be removed",
    ),
    Bug(
        "every copy that a start finds is the log",
        "log.future:FutureLogs._register_loaded",
        "if assigned(*key) != found.log_dir.directory_id:",
        "if False:",
        "a copy that has a part takes the place of what has all",
    ),
    Bug(
        "replicas of a lost directory are recreated",
        "replica.manager:ReplicaManager._may_be_offline",
        "return directory in offline",
        "return False",
        "an empty replica counts as the one that was in sync",
    ),
    Bug(
        "one good directory speaks for all",
        "log.manager:LogManager.previous_broker_epoch",
        "return min(epochs) if len(epochs) == 1 else -1",
        "return max(epochs)",
        "a broker whose directory failed counts as stopped in good order",
    ),
)

# The first seed of the world that catches it, of those that are caught soon. A seed that comes later may be another run
# after the next change of the product.
CAUGHT_BY_SEED: dict[str, int] = {
    "the log that was replaced keeps its name": 1,
    "a partition goes on with the log that was replaced": 2,
    "a move that is given up leaves its copy": 2,
    "a move is not reported to the controller": 4,
}
