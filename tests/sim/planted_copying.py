"""Bugs to plant in what nodes, a consumer group and transactions do together; the world of `copying` finds them."""

from __future__ import annotations

from tests.sim.planted import Bug

COPYING = (
    Bug(
        "partitions are given before they are free",
        "coordinator.group.consumer.reconcile:_step",
        "available = frozenset(partition for partition in missing if is_free(partition))",
        "available = missing",
        "two members copy the same partition",
    ),
    Bug(
        "member epochs of a transaction's offsets are not checked",
        "coordinator.group.offsets.commits:_check_transactional_member",
        "check_commit(consumers, request.member_id, epoch, MEMBER_EPOCH_VERSION, _partitions(request))",
        "pass",
        "a member that was given up commits what its successor copies too",
    ),
    Bug(
        "what a dead consumer had stays its own",
        "coordinator.group.consumer.deadlines:Deadlines.is_due",
        "if key.member_id not in group.members:",
        "if True:",
        "its partitions are no longer copied",
    ),
    Bug(
        "a removal that could not be stored is not tried again",
        "coordinator.group.consumer.migration:Migration.complete_write",
        "self._deadlines.loaded(group, now)",
        "pass",
        "a dead member keeps its partitions for ever",
    ),
    Bug(
        "followers know no producers",
        "log.follower_append:append_as_follower",
        "log.log_start_offset = max(log.log_start_offset, start)",
        "log.log_start_offset = max(log.log_start_offset, start)\nlog.producers = type(log.producers)()",
        "who leads next takes what is sent again for new, and does not know which transactions are open",
    ),
    Bug(
        "a coordinator that was replaced goes on",
        "coordinator.service:ShardHost.on_resigned",
        "shard = self.shards.pop(partition_id, None)",
        "shard = None",
        "a broker that led a partition answers for its groups and transactions beside the one that leads it",
    ),
    Bug(
        "a new coordinator forgets the ends that it owes",
        "coordinator.transaction.machine:TransactionMachine.unfinished",
        "if metadata.is_ending]",
        "if False]",
        "a transaction hangs whose coordinator died between its decision and the markers",
    ),
    Bug(
        "an upgrade forgets what members have",
        "coordinator.group.consumer.conversion:upgraded",
        "held = _unpublished(classic, stored, subscriptions, view)",
        "held = {each: NO_PARTITIONS for each in classic.members}",
        "a consumer is given what members of the classic protocol still copy",
    ),
    Bug(
        "an assignment is sent once",
        "coordinator.group.consumer.state:ConsumerGroup.must_send_assignment",
        "return changed or (left != 0 and owned != assigned)",
        "return changed",
        "a member whose answer was lost never reads what it was given, or does not give up what others wait for",
    ),
)

# A seed of the world that catches the bug. The other bugs need luck; `tests/component/coordinator/test_group_bugs.py`
# catches each of the nine.
CAUGHT_BY_SEED: dict[str, int] = {
    "partitions are given before they are free": 1,
    "what a dead consumer had stays its own": 1,
    "followers know no producers": 5,
}
